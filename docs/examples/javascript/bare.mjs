// What a Chrome on a debugging port does, without anything beside it: a worker orders and
// is killed, and another comes: node bare.mjs
import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;

if (process.argv[2]) { // the worker that is killed
  const page = (await chromium.connectOverCDP(process.argv[2])).contexts()[0].pages()[0];
  await page.goto(shop);
  await page.click('button');
  await page.waitForSelector('#answer:not(:empty)');
  process.kill(process.pid, 'SIGKILL');
}

const profile = mkdtempSync(`${tmpdir()}/bare-`);
const chrome = spawn(process.env.CHROME ?? 'chromium',
  ['--headless', '--no-sandbox', '--no-first-run', '--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank'],
  { stdio: ['ignore', 'ignore', 'pipe'] });
let url;
for await (const line of createInterface({ input: chrome.stderr })) {
  url = /^DevTools listening on (\S+)/.exec(line)?.[1];
  if (url) break;
}
chrome.stderr.resume();
chrome.stderr.on('error', () => {}); // it was closed behind the loop above

const second = await chromium.connectOverCDP(url);
const killed = fork(process.argv[1], [url]);
await once(killed, 'exit');
console.log('a second worker beside the first: let in');
const page = second.contexts()[0].pages()[0];
console.log(`after the first was killed it finds: ${await page.textContent('#answer')}`);
await page.click('button');
await page.waitForFunction(() => /order [^1]/.test(document.querySelector('#answer').textContent));
console.log(`and nothing keeps it from another: ${await page.textContent('#answer')}`);
await (await second.newBrowserCDPSession()).send('Browser.close');
await once(chrome, 'exit');
rmSync(profile, { recursive: true, maxRetries: 10 });
