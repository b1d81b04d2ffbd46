// One scenario of one client of Go: clients CLIENT SCENARIO ADDRESSES. Prints the outcome in one line.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const seconds = 8

var ctx = context.Background()

func fail(why any) { fmt.Println(why); os.Exit(1) }

func must[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}

func distinct(numbers []int64) {
	seen := map[int64]bool{}
	for _, number := range numbers {
		seen[number] = true
	}
	if len(seen) != len(numbers) {
		fail(fmt.Sprintf("%d of %d numbers differ", len(seen), len(numbers)))
	}
}

// Has callers take numbers side by side: each so many, or until the time is over.
func take(callers, each int, incr func(string) (int64, error)) ([]int64, []string) {
	var lock sync.Mutex
	var all sync.WaitGroup
	var numbers []int64
	var errors []string
	end := time.Now().Add(seconds * time.Second)
	for i := 0; i < callers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < each || each == 0 && time.Now().Before(end); n++ {
				number, err := incr("book:6")
				lock.Lock()
				if err == nil {
					numbers = append(numbers, number)
				} else {
					errors = append(errors, err.Error())
				}
				lock.Unlock()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
	all.Wait()
	distinct(numbers)
	return numbers, errors
}

func counts(incr func(string) (int64, error)) {
	first := must(incr("book:1"))
	if must(incr("book:1")) != first+1 {
		fail("it does not grow")
	}
}

func main() {
	client, scenario, addresses := os.Args[1], os.Args[2], strings.Split(os.Args[3], ",")
	isCluster := scenario == "cluster" || scenario == "stop" || scenario == "kill"
	var incr func(string) (int64, error)
	var batch func(transaction bool) []int64
	switch client {
	case "go-redis":
		var r redis.UniversalClient
		if isCluster {
			r = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
		} else {
			r = redis.NewClient(&redis.Options{Addr: addresses[0]})
		}
		incr = func(key string) (int64, error) { return r.Incr(ctx, key).Result() }
		batch = func(transaction bool) (numbers []int64) {
			add := func(p redis.Pipeliner) error {
				for i := 0; i < 10; i++ {
					p.Incr(ctx, "book:3")
				}
				return nil
			}
			run := r.Pipelined
			if transaction {
				run = r.TxPipelined
			}
			for _, answer := range must(run(ctx, add)) {
				numbers = append(numbers, must(answer.(*redis.IntCmd).Result()))
			}
			return numbers
		}
	case "rueidis":
		option := rueidis.ClientOption{InitAddress: addresses, DisableCache: true, ForceSingleClient: !isCluster}
		if !isCluster {
			option.InitAddress = addresses[:1]
		}
		r := must(rueidis.NewClient(option))
		incr = func(key string) (int64, error) { return r.Do(ctx, r.B().Incr().Key(key).Build()).AsInt64() }
		batch = func(transaction bool) (numbers []int64) {
			if transaction {
				r.Dedicated(func(d rueidis.DedicatedClient) error {
					commands := rueidis.Commands{d.B().Multi().Build()}
					for i := 0; i < 10; i++ {
						commands = append(commands, d.B().Incr().Key("book:3").Build())
					}
					answers := d.DoMulti(ctx, append(commands, d.B().Exec().Build())...)
					for _, answer := range must(answers[len(answers)-1].ToArray()) {
						numbers = append(numbers, must(answer.AsInt64()))
					}
					return nil
				})
				return numbers
			}
			commands := rueidis.Commands{}
			for i := 0; i < 10; i++ {
				commands = append(commands, r.B().Incr().Key("book:3").Build())
			}
			for _, answer := range r.DoMulti(ctx, commands...) {
				numbers = append(numbers, must(answer.AsInt64()))
			}
			return numbers
		}
	case "redigo":
		if isCluster {
			fmt.Println("-")
			return
		}
		pool := &redigo.Pool{MaxIdle: 16, Dial: func() (redigo.Conn, error) { return redigo.Dial("tcp", addresses[0]) }}
		incr = func(key string) (int64, error) {
			c := pool.Get()
			defer c.Close()
			return redigo.Int64(c.Do("INCR", key))
		}
		batch = func(transaction bool) (numbers []int64) {
			c := pool.Get()
			if transaction {
				c.Send("MULTI")
			}
			for i := 0; i < 10; i++ {
				c.Send("INCR", "book:3")
			}
			if transaction {
				return must(redigo.Int64s(c.Do("EXEC")))
			}
			return must(redigo.Int64s(c.Do("")))
		}
	}
	switch scenario {
	case "connect", "cluster":
		counts(incr)
	case "pool":
		if _, errors := take(16, 50, incr); len(errors) > 0 {
			fail(errors[0])
		}
	case "pipeline", "transaction":
		numbers := batch(scenario == "transaction")
		distinct(numbers)
		if len(numbers) != 10 {
			fail(len(numbers))
		}
	default:
		numbers, errors := take(4, 0, incr)
		if len(numbers) == 0 {
			fail("no number; " + errors[0])
		}
		first := ""
		if len(errors) > 0 {
			first = ": " + errors[0]
		}
		fmt.Printf("%d errors%s\n", len(errors), first)
		return
	}
	fmt.Println("ok")
}
