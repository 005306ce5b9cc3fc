// An MCP server as a worker, driven over its standard streams as an agent does:
// node mcp.mjs BIN ACTIONS ARG... (see actions.mjs). BIN is the server's name in
// node_modules/.bin. Actions:
//   tools  call {tool, arguments}  disconnect
// call returns the tool's text, and fails if the tool reports an error.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { run, usage } from './actions.mjs';

const [bin, actions, ...args] = usage('mcp.mjs', 'BIN ACTIONS ARG...', 2);

await run(async () => {
  const path = fileURLToPath(new URL(`node_modules/.bin/${bin}`, import.meta.url));
  const server = spawn(process.execPath, [path, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(server, 'exit');
  const waiting = new Map();
  createInterface({ input: server.stdout }).on('line', (line) => {
    const message = JSON.parse(line);
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  });
  let last = 0;
  const send = (message) => server.stdin.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n');
  const request = async (method, params) => {
    const id = ++last;
    const answered = new Promise((resolve) => waiting.set(id, resolve));
    send({ id, method, params });
    const { result, error } = await Promise.race([
      answered, ended.then(([code]) => { throw new Error(`${bin} ended with status ${code}`); }),
    ]);
    if (error) throw new Error(error.message);
    return result;
  };
  await request('initialize', { protocolVersion: '2025-03-26', capabilities: {}, clientInfo: { name: 'leasehold', version: '0' } });
  send({ method: 'notifications/initialized' });
  return {
    tools: async () => (await request('tools/list', {})).tools.map((tool) => tool.name),
    call: async ({ tool, arguments: given = {} }) => {
      const { content, isError } = await request('tools/call', { name: tool, arguments: given });
      const text = content.map((part) => part.text ?? part.type).join('\n');
      if (isError) throw new Error(text);
      return text;
    },
    disconnect: async () => {
      server.stdin.end();
      await ended;
    },
  };
}, actions);
