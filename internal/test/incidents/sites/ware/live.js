// The server draws the page: what is pressed goes to it in frames, and what it answers is shown.
const socket = new WebSocket(`ws://${location.host}/live/websocket?_csrf_token=8f2c&vsn=2.0.0`);
let ref = 3;
const push = (topic, name, body, join = '4') => socket.send(JSON.stringify([join, `${++ref}`, topic, name, body]));
const live = (type, event, value) => push('lv:phx-F8a', 'event', { type, event, value });
socket.onopen = () => {
  push('lv:phx-F8a', 'phx_join', { url: location.href, params: {}, session: 'SFMyNTY', static: 'x' });
  setInterval(() => push('phoenix', 'heartbeat', {}, null), 1500);
};
socket.onmessage = ({ data }) => {
  const text = JSON.parse(data)[4].response.diff['0'];
  if (text) document.getElementById('view').textContent = text;
};
