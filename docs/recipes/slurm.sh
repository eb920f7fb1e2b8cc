#!/bin/bash
# One model, trained by all machines of a Slurm job: a Ray cluster for as long as the job lasts, then one command.
#
#     sbatch docs/recipes/slurm.sh /shared/graph.cg /shared/model
#
# credalgnn[ray] is installed in the same place on all machines. A packed graph on a file system that all of them see is
# read from there; one that only the first sees is copied to the temporary files of the others once.
#
# Ray asks nobody who they are: whoever reaches its ports on these machines, other users of the cluster among them, runs
# code as you. Use it on machines that you have for yourself, in a network that you trust (SECURITY.md).
#SBATCH --job-name=credalgnn
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
set -euo pipefail

graph=$1
model=$2
port=6379
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
# Not --ip-address, which is 127.0.1.1 on Debian. Of several networks this is the first one; name another one if need be.
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --all-ip-addresses | awk '{print $1}')
each=$((SLURM_CPUS_PER_TASK / 2)) # workers of a machine: half its processors, as a worker's sampler has a thread of its own
workers=$((SLURM_JOB_NUM_NODES * each))
batch=$((2000 * workers)) # all workers share a batch, and with less than 2,000 nodes each they wait for one another
export RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # which srun does not take from the job by itself since Slurm 22.05

srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" \
    ray start --head --node-ip-address="$ip" --port="$port" --num-cpus="$each" \
    --include-dashboard=false --block &
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    others=$((SLURM_JOB_NUM_NODES - 1))
    srun --overlap --nodes="$others" --ntasks="$others" --exclude="$first" \
        ray start --address="$ip:$port" --num-cpus="$each" --block &
fi

# All machines are there when Ray counts all their processors.
for _ in $(seq 60); do
    found=$(python -c "import ray; ray.init('$ip:$port', logging_level='ERROR')
print(int(ray.cluster_resources().get('CPU', 0)))" 2>/dev/null || echo 0)
    [ "$found" -ge "$workers" ] && break
    sleep 5
done

srun --overlap --nodes=1 --ntasks=1 --nodelist="$first" \
    credalgnn fit --graph "$graph" --out "$model" --method credal-coverage --set batch_size="$batch" \
    --engine ray --workers "$workers" --address "$ip:$port"
