"""Records of experiments on disk: their schema, the folder, tables of nodes."""
