/* Fills the page; runs last. */

showHeader();
showExamples();
showUnfamiliar();
showAlarms();
showFacts();
drawFigures();
showNodes();
closeBeside($("panel"));
whenResized(drawFigures);
$("panel").addEventListener("close", closed);
window.addEventListener("hashchange", followAddress);
followAddress();
