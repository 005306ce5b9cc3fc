// A NATS client in another language that reads the events: node nats.mjs URL SUBJECT.
// After the line {"action":"connect"} it prints
// {"action":"event","ok":true,"value":{subject,headers,data}} for each message.
import { connect } from '@nats-io/transport-node';
import { usage } from './actions.mjs';

const [servers, subject] = usage('nats.mjs', 'URL SUBJECT', 2);
const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');

try {
  const connection = await connect({ servers });
  const subscription = connection.subscribe(subject);
  await connection.flush(); // now the server has the subscription
  print({ action: 'connect', ok: true, value: null });
  for await (const message of subscription) {
    const headers = {};
    for (const [name, values] of message.headers ?? []) headers[name] = values[0];
    print({ action: 'event', ok: true, value: { subject: message.subject, headers, data: message.json() } });
  }
} catch (error) {
  print({ action: 'connect', ok: false, error: String(error?.message ?? error) });
  process.exit(1);
}
