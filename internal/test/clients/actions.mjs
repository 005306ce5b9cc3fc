// Runs a list of actions, and prints one JSON line after each.
//
// The actions are a JSON array in an argument or, with "-", one JSON object per line on
// the standard input. After an action of an array that fails, the script ends with exit
// status 1. With "-" it reads the next line.
import { createInterface } from 'node:readline';

function print(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

async function perform(handlers, action) {
  const handler = handlers[action.action];
  if (!handler) {
    print({ action: action.action, ok: false, error: 'no such action: want one of ' + Object.keys(handlers).join(', ') });
    return false;
  }
  try {
    const value = await handler(action);
    print({ action: action.action, ok: true, value: value === undefined ? null : value });
    return true;
  } catch (error) {
    print({ action: action.action, ok: false, error: String(error?.message ?? error) });
    return false;
  }
}

// run connects first, as an action named connect.
export async function run(connect, actions) {
  let handlers;
  if (!(await perform({ connect: async () => { handlers = await connect(); } }, { action: 'connect' }))) {
    process.exit(1);
  }
  // The worker stays connected and does nothing, as a real one between its steps.
  handlers.waitForever = () => new Promise(() => setInterval(() => {}, 1 << 30));
  handlers.wait = ({ milliseconds }) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  if (actions !== '-') {
    for (const action of JSON.parse(actions)) {
      if (!(await perform(handlers, action))) process.exit(1);
    }
    process.exit(0);
  }
  for await (const line of createInterface({ input: process.stdin })) {
    await perform(handlers, JSON.parse(line));
  }
  process.exit(0);
}

// printEvents prints {"action":"event","ok":true,"value":{method,params}} for each
// event of a CDP session. The client's library has to emit events by their names.
export function printEvents(session, method) {
  session.on(method, (params) => print({ action: 'event', ok: true, value: { method, params } }));
}

// downloadedFile returns the file name of the next download that a CDP session reports as
// complete.
export function downloadedFile(session) {
  return new Promise((resolve, reject) => {
    let name;
    session.on('Browser.downloadWillBegin', ({ suggestedFilename }) => { name = suggestedFilename; });
    session.on('Browser.downloadProgress', ({ state }) => {
      if (state === 'completed') resolve(name);
      if (state === 'canceled') reject(new Error(`download of ${name} canceled`));
    });
  });
}

// usage returns the arguments, and ends the script if one is missing.
export function usage(script, text, count) {
  const args = process.argv.slice(2);
  if (args.length < count) {
    process.stderr.write(`usage: node ${script} ${text}\n`);
    process.exit(2);
  }
  return args;
}
