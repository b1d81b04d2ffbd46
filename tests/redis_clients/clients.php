<?php
// One scenario of phpredis: clients.php CLIENT SCENARIO ADDRESSES. Prints the outcome in one line.
const SECONDS = 8;
[, , $scenario, $list] = $argv;
$nodes = explode(",", $list);
[$host, $port] = explode(":", $nodes[0]);

function check($holds, $why) {
    if (!$holds) throw new Exception($why);
}

function distinct($numbers, $count) {
    $different = count(array_unique($numbers));
    check($different === $count, "$different of $count numbers differ");
}

// Some errors are no exceptions, but false.
function number($answer) {
    if (!is_int($answer)) throw new RedisException("it answers " . json_encode($answer));
    return $answer;
}

// PHP has no threads. Has processes take numbers side by side: each so many, or until the time is over. Returns the failures.
function take($callers, $each, $connect) {
    $told = [];
    for ($i = 0; $i < $callers; $i++) {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        if (pcntl_fork() === 0) {
            [$numbers, $errors, $end, $incr] = [[], [], microtime(true) + SECONDS, $connect()];
            for ($n = 0; $each ? $n < $each : microtime(true) < $end; $n++) {
                try {
                    $numbers[] = number($incr());
                } catch (RedisException | RedisClusterException $error) {
                    $errors[] = substr(get_class($error) . " " . $error->getMessage(), 0, 80);
                    usleep(10000);
                }
            }
            fwrite($theirs, json_encode([$numbers, $errors]));
            posix_kill(getmypid(), SIGKILL);
        }
        fclose($theirs);
        $told[] = $ours;
    }
    $all = [[], []];
    foreach ($told as $one) {
        [$numbers, $errors] = json_decode(stream_get_contents($one)) ?? [[], ["a caller failed"]];
        $all = [array_merge($all[0], $numbers), array_merge($all[1], $errors)];
    }
    [$numbers, $errors] = $all;
    check($numbers, "no number; " . ($errors[0] ?? ""));
    distinct($numbers, count($numbers));
    return $errors;
}

function single($how = "connect") {
    global $host, $port;
    $r = new Redis();
    $r->$how($host, (int) $port);
    return $r;
}

function cluster() {
    global $nodes;
    return new RedisCluster(null, $nodes);
}

try {
    if ($scenario === "connect" || $scenario === "cluster") {
        $r = $scenario === "cluster" ? cluster() : single();
        $first = number($r->incr("book:1"));
        check($r->incr("book:1") === $first + 1 && $r->get("book:1") === (string) ($first + 1), "it does not grow");
    } elseif ($scenario === "pool") {
        // A closed connection goes back to the pool of its process.
        $errors = take(8, 50, fn() => function () {
            $r = single("pconnect");
            $number = $r->incr("book:2");
            $r->close();
            return $number;
        });
        check(!$errors, $errors[0] ?? "");
    } elseif ($scenario === "pipeline" || $scenario === "transaction") {
        $r = single()->multi($scenario === "pipeline" ? Redis::PIPELINE : Redis::MULTI);
        for ($i = 0; $i < 10; $i++) $r->incr("book:3");
        distinct(array_map("number", $r->exec()), 10);
    } else {
        $errors = take(4, 0, function () {
            $r = cluster();
            return fn() => $r->incr("book:6");
        });
        echo count($errors) . " errors" . ($errors ? ": $errors[0]" : "") . "\n";
        exit;
    }
    echo "ok\n";
} catch (Throwable $error) {
    echo get_class($error) . " " . $error->getMessage() . "\n";
    exit(1);
}
