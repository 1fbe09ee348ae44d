// Sets the selected colour theme before the first paint; "auto" follows the system.
(() => {
  const chosen = localStorage.getItem("workspace.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
