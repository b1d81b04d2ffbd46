"""One scenario of one Python client: clients.py CLIENT SCENARIO ADDRESSES. Prints what came of it in one line."""
import asyncio
import sys
import threading
import time

client, scenario, addresses = sys.argv[1], sys.argv[2], [a.rsplit(":", 1) for a in sys.argv[3].split(",")]
host, port = addresses[0][0], int(addresses[0][1])
SECONDS = 8


def distinct(numbers, count):
    assert len(set(numbers)) == count, f"{len(set(numbers))} of {count} numbers differ"


def redis_py():
    import redis
    from redis.cluster import ClusterNode, RedisCluster

    if scenario == "connect":
        for protocol in [2, 3]:
            r = redis.Redis(host, port, protocol=protocol)
            first = r.incr("book:1")
            assert r.incr("book:1") == first + 1 and int(r.get("book:1")) == first + 1
    elif scenario == "pool":
        r, got = redis.Redis(host, port), []
        threads = [threading.Thread(target=lambda: got.extend(r.incr("book:2") for _ in range(50))) for _ in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        distinct(got, 800)
    elif scenario == "pipeline":
        p = redis.Redis(host, port).pipeline(transaction=False)
        [p.incr("book:3") for _ in range(100)]
        distinct(p.execute(), 100)
    elif scenario == "transaction":
        p = redis.Redis(host, port).pipeline()
        last = p.incr("book:4").incr("book:4", 5).get("book:4").execute()
        assert last == [last[0], last[0] + 5, str(last[0] + 5).encode()], last
    elif scenario == "cluster":
        for protocol in [2, 3]:
            r = RedisCluster(host=host, port=port, protocol=protocol)
            first = r.incr("book:5")
            assert r.incr("book:5") == first + 1
    else:
        r = RedisCluster(startup_nodes=[ClusterNode(h, int(p)) for h, p in addresses])
        callers(lambda: r.incr("book:6"))


def callers(incr):
    numbers, errors, end = [], [], time.monotonic() + SECONDS

    def call():
        while time.monotonic() < end:
            try:
                numbers.append(incr())
            except Exception as error:
                errors.append(f"{type(error).__name__} {error}"[:80])
                time.sleep(0.01)

    threads = [threading.Thread(target=call) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    report(numbers, errors)


def report(numbers, errors):
    distinct(numbers, len(numbers))
    assert numbers, f"no number; {errors[:1]}"
    print(f"{len(errors)} errors{': ' + errors[0] if errors else ''}")
    sys.exit()


async def load(incr):
    numbers, errors, end = [], [], time.monotonic() + SECONDS

    async def call():
        while time.monotonic() < end:
            try:
                numbers.append(await incr())
            except Exception as error:
                errors.append(f"{type(error).__name__} {error}"[:80])
                await asyncio.sleep(0.01)

    await asyncio.gather(*[call() for _ in range(4)])
    report(numbers, errors)


async def coredis():
    import coredis

    if scenario in ["cluster", "stop", "kill"]:
        nodes = [{"host": h, "port": int(p)} for h, p in addresses]
        async with coredis.RedisCluster(startup_nodes=nodes) as r:
            if scenario != "cluster":
                await load(lambda: r.incr("book:6"))
            first = await r.incr("book:5")
            assert await r.incr("book:5") == first + 1
        return
    async with coredis.Redis(host, port) as r:
        if scenario == "connect":
            first = await r.incr("book:1")
            assert await r.incr("book:1") == first + 1
        elif scenario == "pool":
            distinct(await asyncio.gather(*[r.incr("book:2") for _ in range(200)]), 200)
        else:
            async with r.pipeline(transaction=scenario == "transaction") as p:
                asked = [p.incr("book:3") for _ in range(10)]
            distinct([await one for one in asked], 10)


async def glide():
    from glide import Batch, ClusterBatch, GlideClient, GlideClientConfiguration
    from glide import GlideClusterClient, GlideClusterClientConfiguration, NodeAddress

    nodes = [NodeAddress(h, int(p)) for h, p in addresses]
    if scenario in ["cluster", "stop", "kill"]:
        r = await GlideClusterClient.create(GlideClusterClientConfiguration(nodes, request_timeout=5000))
        if scenario != "cluster":
            await load(lambda: r.incr("book:6"))
        first = await r.incr("book:5")
        assert await r.incr("book:5") == first + 1
        return
    r = await GlideClient.create(GlideClientConfiguration(nodes[:1], request_timeout=5000))
    if scenario == "connect":
        first = await r.incr("book:1")
        assert await r.incr("book:1") == first + 1
    elif scenario == "pool":
        distinct(await asyncio.gather(*[r.incr("book:2") for _ in range(200)]), 200)
    else:
        batch = Batch(is_atomic=scenario == "transaction")
        for _ in range(10):
            batch.incr("book:3")
        distinct(await r.exec(batch, raise_on_error=True), 10)


if client == "redis-py":
    redis_py()
else:
    asyncio.run({"coredis": coredis, "valkey-glide": glide}[client]())
print("ok")
