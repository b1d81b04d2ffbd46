//! The clocks of a node: a preloaded library makes them run at another rate, or jump.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::time::{ClockId, clock_gettime};

const SOURCE: &str = include_str!("../preload/clock.c");
const WORDS: usize = 8;
const REAL: f64 = 1_000_000.0;

/// Builds the library with the C compiler of this machine.
///
/// # Errors
/// There is no C compiler, or it fails.
pub fn build(dir: &Path) -> io::Result<PathBuf> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    std::fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .output()?;
    if output.status.success() {
        return Ok(library);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("cc: {}", said.trim())))
}

/// The file that a node's clocks follow.
pub struct Clock {
    path: PathBuf,
    file: File,
    words: [i64; WORDS],
}

fn real() -> [i64; 2] {
    [ClockId::Monotonic, ClockId::Boottime].map(|id| {
        let now = clock_gettime(id);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    })
}

impl Clock {
    /// A clock that shows the real time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(path: PathBuf) -> io::Result<Clock> {
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
        let [monotonic, boottime] = real();
        let words = [0, REAL as i64, monotonic, boottime, monotonic, boottime, 0, 0];
        let mut clock = Clock { path, file, words };
        clock.write()?;
        Ok(clock)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets how fast it runs (1: as fast as the real one), from where it stands.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_rate(&mut self, rate: f64) -> io::Result<()> {
        let now = real();
        for (which, now) in now.into_iter().enumerate() {
            let since = (now - self.words[2 + which]) as f64;
            self.words[4 + which] += (since * self.words[1] as f64 / REAL) as i64;
            self.words[2 + which] = now;
        }
        self.words[1] = (rate * REAL) as i64;
        self.write()
    }

    /// Sets how far the wall clock is off.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_wall_offset(&mut self, seconds: i64) -> io::Result<()> {
        self.words[6] = seconds * 1_000_000_000;
        self.write()
    }

    /// How often the node asked for the time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn readings(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, 56)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// The word of the readings is the node's; all others are ours. The version is odd while they
    /// are written.
    fn write(&mut self) -> io::Result<()> {
        self.words[0] += 1;
        self.file.write_all_at(&self.words[0].to_ne_bytes(), 0)?;
        let body: Vec<u8> = self.words[1..7].iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&body, 8)?;
        if self.words[0] == 1 {
            self.file.write_all_at(&[0; 8], 56)?;
        }
        self.words[0] += 1;
        self.file.write_all_at(&self.words[0].to_ne_bytes(), 0)
    }
}
