// The corner in which one can talk to the insurer. Every page has it.
const chat = new WebSocket(`ws://${location.host}/chat`);
const tell = (message) => chat.readyState === WebSocket.OPEN && chat.send(JSON.stringify(message));
const here = () => tell({ t: 'ping', page: location.pathname });
chat.onopen = () => { here(); setInterval(here, 700); };
chat.onmessage = (m) => { at('staff').textContent = JSON.parse(m.data).text; };
document.body.insertAdjacentHTML('beforeend', '<aside><p id="staff"></p><button id="help">Potřebujete pomoc?</button><p id="talk"></p></aside>');
on('help', () => {
  tell({ t: 'open', page: location.pathname });
  at('talk').innerHTML = 'Dobrý den! Za chvíli se vám budeme věnovat. <input id="say" placeholder="Napište nám">';
});
