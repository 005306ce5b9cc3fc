// agent-browser as a worker, called once for each step, as an agent does:
// node agent-browser.mjs URL ACTIONS DIR (see ../actions.mjs). DIR gets the files of its
// daemon. Actions:
//   command {arguments}  chat {text, model}  disconnect
// command returns what the command prints. model is the base URL of a model's API.
import { execFile } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { run, usage } from '../actions.mjs';

const [url, actions, dir] = usage('agent-browser.mjs', 'URL ACTIONS DIR', 3);
const program = fileURLToPath(new URL(`node_modules/agent-browser/bin/agent-browser-linux-${process.arch}`, import.meta.url));
// The package leaves this to a script of its installation.
chmodSync(program, 0o755);

const call = async (args, more = {}) => {
  try {
    const { stdout } = await promisify(execFile)(program, args, {
      env: { ...process.env, HOME: dir, AGENT_BROWSER_SOCKET_DIR: dir, AGENT_BROWSER_NO_VERSION_CHECK: '1', AGENT_BROWSER_DEFAULT_TIMEOUT: '80000', ...more },
    });
    return stdout.trim();
  } catch (error) {
    throw new Error(`${error.stderr ?? ''}${error.stdout ?? ''}`.trim() || error.message);
  }
};

await run(async () => {
  await call(['connect', url]);
  return {
    command: async ({ arguments: args }) => call(args),
    chat: async ({ text, model }) => call(['chat', text], { AI_GATEWAY_URL: model, AI_GATEWAY_API_KEY: 'none' }),
    disconnect: async () => { await call(['close']); },
  };
}, actions);
