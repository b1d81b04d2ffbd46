//! Measures how fast one thread makes ids. The clock goes on as soon as a unit of time is used up, so that the
//! generator is the limit, not the format.
//!
//! `cargo bench -p ratchet-ids`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ratchet_ids::{Fixed, Format, Generator, NotYet, Run, SteadyTime};

const START_MS: u64 = 1_700_000_000_000;

/// How many ids an iteration makes.
const IDS: u64 = 100_000;

/// How many ids a message has.
const LIST: u64 = 1_000;

/// A generator, and a clock that shows the time that it waits for.
struct Bench {
    format: Format,
    fixed: Fixed,
    generator: Generator,
    now_ms: u64,
}

impl Bench {
    fn new(format: &str) -> Bench {
        let format = Format::parse(format).expect("a format");
        let parameters: Vec<(&str, u64)> = format.parameters().map(|name| (name, 1)).collect();
        let fixed = format.fixed(&parameters, None).expect("all parameters");
        let generator = Generator::new(&format, 5, START_MS, u64::MAX).expect("a worker");
        Bench { generator, fixed, format, now_ms: START_MS + 1 }
    }

    /// Makes up to `count` ids, as one run.
    fn run(&mut self, count: u64, random: impl FnMut() -> u64) -> u64 {
        loop {
            match self.generator.take(self.now_ms, self.fixed, count) {
                Ok(run) => {
                    let made = run.count();
                    run.ids(random).for_each(|id| {
                        black_box(id);
                    });
                    return made;
                }
                Err(NotYet::Until(ms)) => self.now_ms = ms,
                Err(end) => panic!("{end:?}"),
            }
        }
    }

    /// Makes a list of `count` ids.
    fn list(&mut self, count: u64, mut add: impl FnMut(Run)) {
        let mut left = count;
        while left > 0 {
            match self.generator.take(self.now_ms, self.fixed, left) {
                Ok(run) => {
                    left -= run.count();
                    add(run);
                }
                Err(NotYet::Until(ms)) => self.now_ms = ms,
                Err(end) => panic!("{end:?}"),
            }
        }
    }

    fn one(&mut self) -> u128 {
        loop {
            match self.generator.take(black_box(self.now_ms), self.fixed, 1) {
                Ok(run) => return run.ids(|| 0).fold(0, |_, id| id),
                Err(NotYet::Until(ms)) => self.now_ms = ms,
                Err(end) => panic!("{end:?}"),
            }
        }
    }
}

fn generate(c: &mut Criterion) {
    let mut group = c.benchmark_group("generate");
    group.throughput(Throughput::Elements(IDS));
    for name in ["snowflake", "yuewen-route"] {
        let mut bench = Bench::new(name);
        group.bench_function(format!("{name}, one at a time"), |b| {
            b.iter(|| {
                for _ in 0..IDS {
                    black_box(bench.one());
                }
            });
        });
    }
    let mut bench = Bench::new("snowflake");
    let time = SteadyTime::new(0, START_MS);
    group.bench_function("snowflake, one at a time, with a steady time", |b| {
        let mut mono_ns = 0;
        b.iter(|| {
            for _ in 0..IDS {
                // The time passes so that a millisecond has 4096 ids.
                mono_ns += 244;
                bench.now_ms = bench.now_ms.max(time.now_ms(black_box(mono_ns)));
                black_box(bench.one());
            }
        });
    });
    for (name, run) in [("snowflake", 100), ("uuid7", 100)] {
        let mut bench = Bench::new(name);
        let mut seed = 1_u64;
        group.bench_function(format!("{name}, {run} at a time"), |b| {
            b.iter(|| {
                let mut made = 0;
                while made < IDS {
                    made += bench.run(run, || {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        seed
                    });
                }
            });
        });
    }
    let mut bench = Bench::new("snowflake");
    group.bench_function("snowflake, 1000 as a list of 128 bits, then of 64", |b| {
        b.iter(|| {
            for _ in 0..IDS / LIST {
                let mut ids = Vec::with_capacity(LIST as usize);
                bench.list(LIST, |run| ids.extend(run.ids(|| 0)));
                black_box(ids.iter().map(|id| *id as u64).collect::<Vec<_>>());
            }
        });
    });
    let mut bench = Bench::new("snowflake");
    group.bench_function("snowflake, 1000 as a list of 64 bits", |b| {
        b.iter(|| {
            for _ in 0..IDS / LIST {
                let mut ids = Vec::with_capacity(LIST as usize);
                bench.list(LIST, |run| {
                    ids.extend(run.numbers(|| 0).expect("they fit"));
                });
                black_box(ids);
            }
        });
    });
    group.finish();
}

fn text(c: &mut Criterion) {
    let mut group = c.benchmark_group("text");
    for name in ["snowflake", "yuewen-route", "uuid7"] {
        let mut bench = Bench::new(name);
        let id = bench.one();
        let text = bench.format.print(id).to_string();
        group.bench_function(format!("print {name}"), |b| {
            b.iter(|| black_box(bench.format.print(black_box(id)).to_string()));
        });
        group.bench_function(format!("decode {name}"), |b| {
            b.iter(|| black_box(bench.format.decode(black_box(&text)).is_ok()));
        });
    }
    group.finish();
}

criterion_group!(benches, generate, text);
criterion_main!(benches);
