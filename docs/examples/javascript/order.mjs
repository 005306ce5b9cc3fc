// A worker that is lost at the worst moment: it has ordered, and nobody knows whether it
// knows. It kills itself as the kernel would for want of memory: node order.mjs
import { chromium } from 'playwright-core';

const sidecar = process.env.LEASEHOLD_URL ?? 'http://127.0.0.1:9333';
const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;

const browser = await chromium.connectOverCDP(
  `${sidecar}/profiles/shop_018?worker=worker-7&task=task_103&create=true&wait=60s`);
const context = browser.contexts()[0];
const page = context.pages()[0];
const lease = await context.newCDPSession(page);

await lease.send('Lease.step', { name: 'order_a_lamp' });
await page.goto(shop);
await page.click('button');
await page.waitForSelector('#answer:not(:empty)');
console.log('ordered, and now killed');
process.kill(process.pid, 'SIGKILL');
