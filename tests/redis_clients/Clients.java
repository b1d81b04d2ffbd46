// One scenario of one client of Java: Clients CLIENT SCENARIO ADDRESSES. Prints the outcome in one line.
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.springframework.dao.DataAccessException;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.support.atomic.RedisAtomicLong;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;

public class Clients {
    static final int SECONDS = 8;

    static void check(boolean holds, String why) {
        if (!holds) throw new IllegalStateException(why);
    }

    static void distinct(List<Long> numbers) {
        check(new HashSet<>(numbers).size() == numbers.size(), "numbers repeat");
    }

    /** Has callers take numbers side by side: each so many, or until the time is over. Returns the failures. */
    static List<String> take(int callers, int each, Supplier<Long> incr) throws Exception {
        List<Long> numbers = new ArrayList<>();
        List<String> errors = new ArrayList<>();
        long end = System.currentTimeMillis() + SECONDS * 1000;
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < callers; i++) {
            Thread thread = new Thread(() -> {
                for (int n = 0; n < each || each == 0 && System.currentTimeMillis() < end; n++) {
                    try {
                        long number = incr.get();
                        synchronized (numbers) { numbers.add(number); }
                    } catch (RuntimeException error) {
                        synchronized (numbers) { errors.add(error.toString()); }
                        try { Thread.sleep(10); } catch (InterruptedException ended) { return; }
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        distinct(numbers);
        check(!numbers.isEmpty(), "no number; " + errors.stream().findFirst().orElse(""));
        return errors;
    }

    static void run(String scenario, Supplier<Long> incr, Supplier<List<Long>> batch) throws Exception {
        switch (scenario) {
            case "connect", "cluster" -> {
                long first = incr.get();
                check(incr.get() == first + 1, "it does not grow");
            }
            case "pool" -> {
                List<String> errors = take(8, 50, incr);
                check(errors.isEmpty(), errors.toString());
            }
            case "pipeline", "transaction" -> {
                List<Long> numbers = batch.get();
                check(numbers.size() == 10, numbers.toString());
                distinct(numbers);
            }
            default -> {
                List<String> errors = take(4, 0, incr);
                System.out.println(errors.size() + " errors" + errors.stream().findFirst().map(first -> ": " + first).orElse(""));
                System.exit(0);
            }
        }
        System.out.println("ok");
        System.exit(0);
    }

    static void jedis(String scenario, boolean isCluster, List<HostAndPort> nodes) throws Exception {
        UnifiedJedis r = isCluster ? new JedisCluster(Set.copyOf(nodes)) : new JedisPooled(nodes.get(0).getHost(), nodes.get(0).getPort());
        Supplier<List<Long>> batch = () -> {
            List<Response<Long>> answers = new ArrayList<>();
            if (scenario.equals("transaction")) {
                try (AbstractTransaction t = r.multi()) {
                    for (int i = 0; i < 10; i++) answers.add(t.incr("book:3"));
                    t.exec();
                }
            } else {
                try (var p = r.pipelined()) {
                    for (int i = 0; i < 10; i++) answers.add(p.incr("book:3"));
                    p.sync();
                }
            }
            return answers.stream().map(Response::get).collect(Collectors.toList());
        };
        run(scenario, () -> r.incr("book:6"), batch);
    }

    static void lettuce(String scenario, boolean isCluster, List<HostAndPort> nodes) throws Exception {
        Stream<RedisURI> uris = nodes.stream().map(node -> RedisURI.create(node.getHost(), node.getPort()));
        if (isCluster) {
            var r = RedisClusterClient.create(uris.toList()).connect().sync();
            run(scenario, () -> r.incr("book:6"), List::of);
        }
        var c = RedisClient.create(uris.findFirst().orElseThrow()).connect();
        Supplier<List<Long>> batch = () -> {
            if (scenario.equals("transaction")) {
                c.sync().multi();
                for (int i = 0; i < 10; i++) c.sync().incr("book:3");
                return c.sync().exec().stream().map(number -> (Long) number).collect(Collectors.toList());
            }
            c.setAutoFlushCommands(false);
            List<RedisFuture<Long>> answers = new ArrayList<>();
            for (int i = 0; i < 10; i++) answers.add(c.async().incr("book:3"));
            c.flushCommands();
            return answers.stream().map(answer -> answer.toCompletableFuture().join()).collect(Collectors.toList());
        };
        run(scenario, () -> c.sync().incr("book:6"), batch);
    }

    static void spring(String scenario, boolean isCluster, List<HostAndPort> nodes) throws Exception {
        LettuceConnectionFactory factory = isCluster
            ? new LettuceConnectionFactory(new RedisClusterConfiguration(nodes.stream().map(HostAndPort::toString).toList()))
            : new LettuceConnectionFactory(new RedisStandaloneConfiguration(nodes.get(0).getHost(), nodes.get(0).getPort()));
        factory.afterPropertiesSet();
        factory.start();
        StringRedisTemplate r = new StringRedisTemplate(factory);
        if (scenario.equals("connect")) {
            RedisAtomicLong counter = new RedisAtomicLong("book:7", factory);
            long first = counter.incrementAndGet();
            check(counter.incrementAndGet() == first + 1 && counter.get() == first + 1, "RedisAtomicLong does not grow");
        }
        Supplier<List<Long>> batch = () -> {
            SessionCallback<List<Object>> commands = new SessionCallback<>() {
                @Override
                public <K, V> List<Object> execute(RedisOperations<K, V> operations) throws DataAccessException {
                    @SuppressWarnings("unchecked") K key = (K) "book:3";
                    if (scenario.equals("transaction")) operations.multi();
                    for (int i = 0; i < 10; i++) operations.opsForValue().increment(key);
                    return scenario.equals("transaction") ? operations.exec() : null;
                }
            };
            List<Object> answers = scenario.equals("transaction") ? r.execute(commands) : r.executePipelined(commands);
            return answers.stream().map(number -> (Long) number).collect(Collectors.toList());
        };
        run(scenario, () -> r.opsForValue().increment("book:6"), batch);
    }

    public static void main(String[] args) {
        boolean isCluster = List.of("cluster", "stop", "kill").contains(args[1]);
        List<HostAndPort> nodes = Stream.of(args[2].split(",")).map(HostAndPort::from).toList();
        try {
            if (args[0].equals("Jedis")) jedis(args[1], isCluster, nodes);
            else if (args[0].equals("spring-data-redis")) spring(args[1], isCluster, nodes);
            else lettuce(args[1], isCluster, nodes);
        } catch (Exception error) {
            System.out.println(error);
            System.exit(1);
        }
    }
}
