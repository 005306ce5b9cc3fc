"use strict";
// What the websocket of a living session sends as a picture: its head, and the image, which is to be
// closed after it was drawn.
async function pictureOf(buffer) {
  const length = new DataView(buffer).getUint16(0);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 2, length)));
  return { head, image: await createImageBitmap(new Blob([new Uint8Array(buffer, 2 + length)], { type: "image/jpeg" })) };
}

// viewOf opens that websocket: by the person's sign-in link, if they came by one.
function viewOf(session, token, link) {
  const url = new URL((link ? "/sign-in/" + encodeURIComponent(link) : "/v1/sessions/" + encodeURIComponent(session)) + "/view", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  if (token) url.searchParams.set("token", token);
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  return socket;
}
