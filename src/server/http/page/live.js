// Puts what the server sends each second into the places that it names. The page works without this.
const connection = document.getElementById("connection");
const events = new EventSource("/events");
events.onopen = () => { connection.textContent = "Live."; };
events.onerror = () => { connection.textContent = "This node does not answer. Shown is what it said last."; };
events.onmessage = (event) => {
  const now = new DOMParser().parseFromString(event.data, "text/html");
  for (const part of now.querySelectorAll("[data-live]")) {
    const shown = document.getElementById(part.id);
    if (shown && shown.innerHTML !== part.innerHTML) shown.innerHTML = part.innerHTML;
  }
};
