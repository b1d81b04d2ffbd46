# One scenario of redis-rb: clients.rb CLIENT SCENARIO ADDRESSES. Prints the outcome in one line.
require "connection_pool"
require "redis"

SECONDS = 8
_, scenario, list = ARGV
nodes = list.split(",").map { |address| "redis://#{address}" }

def check(holds, why)
  raise why unless holds
end

def distinct(numbers, count)
  check(numbers.uniq.size == count, "#{numbers.uniq.size} of #{count} numbers differ")
end

# Has callers take numbers side by side: each so many, or until the time is over. Returns the failures.
def take(callers, each)
  numbers, errors, ends = Queue.new, Queue.new, Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
  threads = (1..callers).map do
    Thread.new do
      n = 0
      while each ? n < each : Process.clock_gettime(Process::CLOCK_MONOTONIC) < ends
        n += 1
        begin
          numbers << yield
        rescue StandardError => error
          errors << "#{error.class} #{error.message}"[0, 80]
          sleep 0.01
        end
      end
    end
  end
  threads.each(&:join)
  numbers, errors = [numbers, errors].map { |queue| Array.new(queue.size) { queue.pop } }
  check(!numbers.empty?, "no number; #{errors.first}")
  distinct(numbers, numbers.size)
  errors
end

begin
  r = %w[cluster stop kill].include?(scenario) ? Redis.new(cluster: nodes) : Redis.new(url: nodes.first)
  case scenario
  when "connect", "cluster"
    first = r.incr("book:1")
    check(r.incr("book:1") == first + 1 && r.get("book:1") == (first + 1).to_s, "it does not grow")
  when "pool"
    pool = ConnectionPool.new(size: 8) { Redis.new(url: nodes.first) }
    errors = take(16, 50) { pool.with { |c| c.incr("book:2") } }
    check(errors.empty?, errors.first)
  when "pipeline"
    distinct(r.pipelined { |p| 10.times { p.incr("book:3") } }, 10)
  when "transaction"
    distinct(r.multi { |t| 10.times { t.incr("book:3") } }, 10)
  else
    errors = take(4, nil) { r.incr("book:6") }
    puts "#{errors.size} errors#{": #{errors.first}" unless errors.empty?}"
    exit
  end
  puts "ok"
rescue StandardError => error
  puts "#{error.class} #{error.message}"
  exit 1
end
