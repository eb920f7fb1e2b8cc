/* Runs last. */

showHeader();
showMeeting();
showStrangers();
showAlarms();
showFacts();
drawFigures();
showNodes();
closeBeside($("panel"));
whenResized(drawFigures);
$("panel").addEventListener("close", closed);
window.addEventListener("hashchange", followAddress);
followAddress();
