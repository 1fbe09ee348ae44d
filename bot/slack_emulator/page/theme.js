// Sets the chosen colours before the first paint; "auto" leaves them to the system.
(() => {
  const chosen = localStorage.getItem("workspace.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
