// A snippet in which a worker asks for a person, who comes and answers.
import { chromium } from 'playwright-core';
const sidecar = 'http://127.0.0.1:9333';
const browser = await chromium.connectOverCDP(`${sidecar}/profiles/shop_018?worker=worker-7&task=task_101&create=true&wait=10s`);
const context = browser.contexts()[0];
const lease = await context.newCDPSession(context.pages()[0]);

async function person() {
  for (;;) {
    const { items } = await (await fetch(`${sidecar}/v1/sessions`)).json();
    const asks = items.find((s) => s.ask);
    if (!asks) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      continue;
    }
    for (const [path, body] of [['take-over', { person: 'Ann' }], ['hand-back', { note: 'solved', answered: true, data: { code: '1234' } }]]) {
      const answer = await fetch(`${sidecar}/v1/sessions/${asks.session_id}/${path}`,
        { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ lease_token: asks.lease_token, ...body }) });
      if (!answer.ok) throw new Error(await answer.text());
    }
    return;
  }
}
const came = person();
// the snippet
await came;
if (!answered || note !== 'solved' || data.code !== '1234') throw new Error(JSON.stringify({ answered, note, data }));
await browser.close();
