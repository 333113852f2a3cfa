// Light and dark: as the system has it, until the button says otherwise; `?theme=dark` says so for one look.

export function theme() {
  const root = document.documentElement;
  const asked = new URLSearchParams(location.search).get("theme");
  const kept = asked ?? localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}
