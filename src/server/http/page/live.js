// Puts what the server sends each second into the places that it names. The page works without this.
const connection = document.getElementById("connection");
let lost;
function watch() {
  const events = new EventSource("/events");
  events.onopen = () => {
    clearTimeout(lost);
    lost = undefined;
    connection.textContent = "Live.";
  };
  events.onerror = () => {
    lost ??= setTimeout(() => {
      connection.textContent = "The live connection is lost. What is shown may be old.";
    }, 5000);
    // A browser begins anew by itself, but not after an answer that is an error.
    if (events.readyState === EventSource.CLOSED) setTimeout(again, 5000);
  };
  events.onmessage = (event) => {
    const now = new DOMParser().parseFromString(event.data, "text/html");
    for (const part of now.querySelectorAll("[data-live]")) {
      const shown = document.getElementById(part.id);
      if (shown && shown.innerHTML !== part.innerHTML) shown.innerHTML = part.innerHTML;
    }
  };
}
// Begins anew. If the session has ended, the form is shown in the place of this page.
async function again() {
  const page = await fetch("/").catch(() => undefined);
  if (page?.status === 401) location.reload();
  else watch();
}
watch();
