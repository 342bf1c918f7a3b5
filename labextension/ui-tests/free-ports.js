/** Print the first of COUNT consecutive free ports. Usage: node free-ports.js COUNT */
const net = require('net');

function taken(port) {
  return new Promise(done => {
    const server = net.createServer();
    server.once('error', () => done(true));
    server.listen(port, '127.0.0.1', () => server.close(() => done(false)));
  });
}

async function main(count) {
  for (;;) {
    const first = 20000 + Math.floor(Math.random() * 10000);
    const busy = await Promise.all(Array.from({ length: count }, (_, index) => taken(first + index)));
    if (!busy.includes(true)) {
      process.stdout.write(`${first}\n`);
      return;
    }
  }
}

void main(Number(process.argv[2]));
