// The stored theme, before anything is drawn. A plain script, so that nothing flashes.
try {
  const theme = localStorage.getItem("tidegate-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the system's theme it is.
}
