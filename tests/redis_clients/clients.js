// One scenario of one client of Node.js: clients.js CLIENT SCENARIO ADDRESSES. Prints the outcome in one line.
const Redis = require("ioredis");
const { createClient, createCluster } = require("redis");
const [client, scenario, list] = process.argv.slice(2);
const addresses = list.split(",").map((a) => ({ host: a.split(":")[0], port: Number(a.split(":")[1]) }));
const SECONDS = 8;
const check = (holds, why) => { if (!holds) throw new Error(why); };
const distinct = (numbers, count) =>
  check(new Set(numbers.map(String)).size === count, `${new Set(numbers.map(String)).size} of ${count} numbers differ`);

async function load(incr) {
  const numbers = [], errors = [], end = Date.now() + SECONDS * 1000;
  const call = async () => {
    while (Date.now() < end) {
      try { numbers.push(await incr()); } catch (error) {
        errors.push(String(error.message).slice(0, 80));
        await new Promise((done) => setTimeout(done, 10));
      }
    }
  };
  await Promise.all([1, 2, 3, 4].map(call));
  distinct(numbers, numbers.length);
  check(numbers.length, `no number; ${errors[0]}`);
  console.log(`${errors.length} errors${errors.length ? ": " + errors[0] : ""}`);
  process.exit();
}

async function ioredis() {
  const { host, port } = addresses[0];
  const r = ["cluster", "stop", "kill"].includes(scenario) ? new Redis.Cluster(addresses) : new Redis(port, host);
  r.on("error", () => {});
  const incr = (key) => r.incr(key);
  if (scenario === "stop" || scenario === "kill") await load(() => incr("book:6"));
  else if (scenario === "pool") distinct(await Promise.all([...Array(200)].map(() => incr("book:2"))), 200);
  else if (scenario === "pipeline" || scenario === "transaction") {
    const p = scenario === "pipeline" ? r.pipeline() : r.multi();
    for (let i = 0; i < 10; i++) p.incr("book:3");
    distinct((await p.exec()).map(([error, number]) => { check(!error, error); return number; }), 10);
  } else { const first = await incr("book:1"); check((await incr("book:1")) === first + 1, "it does not grow"); }
}

async function nodeRedis() {
  const url = (a) => ({ url: `redis://${a.host}:${a.port}` });
  const isCluster = ["cluster", "stop", "kill"].includes(scenario);
  const r = isCluster ? createCluster({ rootNodes: addresses.map(url) }) : createClient(url(addresses[0]));
  r.on("error", () => {});
  await r.connect();
  const incr = (key) => r.incr(key);
  if (scenario === "stop" || scenario === "kill") await load(() => incr("book:6"));
  else if (scenario === "pool" || scenario === "pipeline") {
    distinct(await Promise.all([...Array(200)].map(() => incr("book:2"))), 200);
  } else if (scenario === "transaction") {
    const p = r.multi();
    for (let i = 0; i < 10; i++) p.incr("book:3");
    distinct(await p.exec(), 10);
  } else { const first = await incr("book:1"); check((await incr("book:1")) === first + 1, "it does not grow"); }
}

(client === "ioredis" ? ioredis() : nodeRedis()).then(
  () => { console.log("ok"); process.exit(); },
  (error) => { console.log(`${error.constructor.name} ${error.message}`); process.exit(1); },
);
