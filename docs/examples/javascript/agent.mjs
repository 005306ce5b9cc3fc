// An AI agent without a model: it speaks MCP with leasehold mcp, and drives the browser that it
// leased. It does what a model would do that reads the tools and their answers: node agent.mjs
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const shop = `http://127.0.0.1:${process.env.PORT ?? 8080}/`;
const server = spawn(process.env.LEASEHOLD ?? 'leasehold', ['mcp', '--worker', 'agent'], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
createInterface({ input: server.stdout }).on('line', (line) => {
  const { id, result, error } = JSON.parse(line);
  const asked = waiting.get(id);
  waiting.delete(id);
  if (error) asked?.reject(new Error(error.message)); else asked?.resolve(result);
});
let last = 0;
const send = (message) => server.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const request = (method, params) => new Promise((resolve, reject) => {
  waiting.set(++last, { resolve, reject });
  send({ id: last, method, params });
});

// A refusal is one sentence for the model, and has its parts for a program.
async function call(name, args = {}) {
  const { content, structuredContent, isError } = await request('tools/call', { name, arguments: args });
  if (isError) console.log(`${name}: ${content[0].text}`);
  return { refused: isError, ...structuredContent };
}

await request('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'agent', version: '1' } });
send({ method: 'notifications/initialized' });

await call('step', { name: 'look_at_the_shop' }); // too early: refused, with what to do next
const lease = await call('lease_profile', { labels: { pool: 'demo' }, task_id: 'visit', wait_seconds: 60, resumable: true });
if (lease.refused) process.exit(1);
console.log(`leased ${lease.profile_id}`);
const browser = await chromium.connectOverCDP(lease.cdp_url);
const page = browser.contexts()[0].pages()[0];
await call('step', { name: 'look_at_the_shop' });
await page.goto(shop);
const visits = await page.textContent('#visits');
await call('checkpoint', { name: 'shop_seen', data: { visits } });
console.log(`the page says: ${visits}`);
await browser.close();
const { released } = await call('release', { outcome: 'succeeded' });
console.log(released ? 'released' : 'not released');
server.stdin.end();
