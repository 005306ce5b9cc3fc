// A worker with Playwright: node playwright.mjs
import { chromium } from 'playwright-core'; // or 'playwright'

const sidecar = process.env.LEASEHOLD_URL ?? 'http://127.0.0.1:9333';
const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;

const browser = await chromium.connectOverCDP(
  `${sidecar}/profiles/shop_018?worker=worker-7&task=task_101&create=true&wait=60s`);
const context = browser.contexts()[0]; // the profile's own, with its cookies
const page = context.pages()[0];

// What the task says of itself helps whoever has to judge it later.
const lease = await context.newCDPSession(page);
await lease.send('Lease.step', { name: 'look_at_the_shop' });

await page.goto(shop);
console.log('Playwright:', await page.textContent('#visits'));
await browser.close(); // ends the session, and gives the profile back
