// A shop to try workers on. It counts a customer's visits in a cookie, and takes orders.
import { createServer } from 'node:http';

const port = Number(process.env.PORT ?? 8080);
let orders = 0;

createServer((request, response) => {
  if (request.method === 'POST' && request.url === '/orders') {
    orders++;
    response.writeHead(201, { 'Content-Type': 'text/plain' }).end(`order ${orders}`);
    return;
  }
  const visits = Number(/visits=(\d+)/.exec(request.headers.cookie ?? '')?.[1] ?? 0) + (request.url === '/' ? 1 : 0);
  response.writeHead(200, { 'Content-Type': 'text/html', 'Set-Cookie': `visits=${visits}; Path=/` }).end(`<!doctype html>
<title>The shop</title>
<h1>The shop</h1>
<p id="visits">visit ${visits}</p>
<button onclick="fetch('/orders', { method: 'POST', body: 'one lamp' }).then((r) => r.text()).then((t) => answer.textContent = t)">
order a lamp</button>
<p id="answer"></p>`);
}).listen(port, '127.0.0.1', () => console.log(`the shop is open at http://127.0.0.1:${port}`));
