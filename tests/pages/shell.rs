//! A shell that runs the commands of a page as a reader types them.
//!
//! `ratchet` is the one that was built here. `sudo` runs the command as the same user, and without the variables of the shell
//! unless it gets `-E`. `scp` and `ssh` know hosts that are directories.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::common::{in_time, processes::ratchet};

const SUDO: &str = r#"
if [ "$1" = -E ]; then
  shift
  exec "$@"
fi
exec env -i PATH="$PATH" "$@"
"#;

/// `FILE... HOST:` alone.
const SCP: &str = r#"
for host; do :; done
host=$hosts/${host%:}
mkdir -p "$host"
while [ $# -gt 1 ]; do
  cp "$1" "$host/"
  shift
done
"#;

const SSH: &str = r#"
cd "$hosts/$1"
exec sh -c "$2"
"#;

pub struct Shell {
    dir: TempDir,
    /// Which of the programs of our own have to be run.
    programs: Vec<&'static str>,
}

impl Shell {
    /// A shell in which `ratchet` asks `server` unless it is told otherwise.
    pub fn new(server: &str) -> Shell {
        let shell = Shell { dir: TempDir::new().expect("a directory"), programs: Vec::new() };
        for dir in ["bin", "here", "hosts"] {
            fs::create_dir(shell.dir.path().join(dir)).expect("a directory");
        }
        let command = ratchet();
        let times = command.get_envs().map(|(name, value)| {
            let value = value.unwrap_or_default();
            format!("export {}='{}'\n", name.display(), value.display())
        });
        let times: String = times.collect();
        let program = command.get_program().display();
        shell.program(
            "ratchet",
            &format!(
                "{times}export RATCHET_SERVER=\"${{RATCHET_SERVER-{server}}}\"\nexec '{program}' \"$@\"\n"
            ),
        );
        shell
    }

    /// The shell with `sudo`, which has to be run.
    pub fn with_sudo(mut self) -> Shell {
        self.program("sudo", SUDO);
        self.programs.push("sudo");
        self
    }

    /// The shell with `scp` and `ssh`, which have to be run.
    pub fn with_hosts(mut self) -> Shell {
        let hosts = format!("hosts='{}'\n", self.dir.path().join("hosts").display());
        for (name, text) in [("scp", SCP), ("ssh", SSH)] {
            self.program(name, &format!("{hosts}{text}"));
            self.programs.push(name);
        }
        self
    }

    /// Makes a program, which writes down that it was run.
    fn program(&self, name: &str, text: &str) {
        let path = self.dir.path().join("bin").join(name);
        let ran = self.dir.path().join(format!("ran-{name}")).display().to_string();
        fs::write(&path, format!("#!/bin/sh\nset -eu\n: >'{ran}'\n{text}")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a program");
    }

    /// A file in the directory in which the commands are run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("here").join(name)
    }

    /// A directory beside that.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The token in a file.
    pub fn token(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect(name).trim_end().to_owned()
    }

    /// Runs commands, one after the other, up to the first that fails. Variables that they export stay for commands that are
    /// run later.
    pub async fn run(&self, commands: &str) -> Output {
        let variables = self.dir.path().join("variables");
        let variables = variables.display();
        let mut script = format!("if [ -f '{variables}' ]; then . '{variables}'; fi\n");
        for command in each(commands) {
            let said = command.replace('\'', "'\\''");
            script.push_str(&format!(
                "{command}\nended=$?\nif [ $ended != 0 ]; then printf 'it ended with %s: %s\\n' $ended '{said}' >&2; exit $ended; fi\n"
            ));
        }
        script.push_str(&format!("export -p >'{variables}'\n"));
        let mut bash = Command::new("bash");
        bash.env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.dir.path().join("bin").display()))
            // The user is named by its number: not every system knows its name.
            .env("USER", rustix::process::getuid().as_raw().to_string())
            .args(["-c", &script])
            .current_dir(self.dir.path().join("here"))
            .stdin(Stdio::null());
        let running = tokio::task::spawn_blocking(move || bash.output().expect("bash runs"));
        in_time("the end of commands", running).await.expect("no panic")
    }

    /// Runs commands, all of which must succeed. Returns their output.
    pub async fn play(&self, commands: &str) -> String {
        let output = self.run(commands).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{commands}\n{printed}{complained}");
        printed
    }

    /// Sees that each program of our own was run.
    pub fn end(&self) {
        let not_run: Vec<_> = (self.programs.iter())
            .filter(|name| !self.dir.path().join(format!("ran-{name}")).exists())
            .collect();
        assert!(not_run.is_empty(), "no command has {not_run:?}");
    }
}

/// Each of the commands: an indented line belongs to the command before.
fn each(commands: &str) -> Vec<String> {
    let mut each: Vec<String> = Vec::new();
    for line in commands.lines() {
        match each.last_mut() {
            Some(begun) if line.starts_with(' ') => {
                begun.push('\n');
                begun.push_str(line);
            }
            _ => each.push(line.to_owned()),
        }
    }
    each
}

/// The commands of this program, of which there must be one, and the others.
fn parted(program: &str, commands: &str) -> [String; 2] {
    let is_of_it = |command: &String| command.split(' ').any(|word| word == program);
    let (of_it, others): (Vec<_>, Vec<_>) = each(commands).into_iter().partition(is_of_it);
    assert!(!of_it.is_empty(), "there is no {program} in {commands}");
    [of_it, others].map(|commands| commands.join("\n"))
}

/// The commands of this program.
pub fn only(program: &str, commands: &str) -> String {
    let [of_it, _] = parted(program, commands);
    of_it
}

/// The commands but for the one command of this program, which must be there.
pub fn without(program: &str, commands: &str) -> String {
    let [_, others] = parted(program, commands);
    others
}

/// Copies files into a directory.
pub fn copy(from: &Path, to: &Path, names: &[&str]) {
    for name in names {
        fs::copy(from.join(name), to.join(name)).expect(name);
    }
}

#[tokio::test]
async fn a_shell_ends_at_the_first_command_that_fails_and_keeps_what_was_exported() {
    let shell = Shell::new("nowhere:1").with_sudo();
    let failed = shell.run("export A=b\nfalse &&\n    true\ntouch late").await;
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(!shell.file("late").exists());
    shell.play("export A=b").await;
    assert_eq!(
        shell.play("echo $A\nsudo sh -c 'echo $A'\nsudo -E sh -c 'echo $A'").await,
        "b\n\nb\n"
    );
    shell.end();
}
