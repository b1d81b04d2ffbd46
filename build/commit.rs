//! Finds the commit of a checkout in its files, without `git`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A commit, and the files whose change means another commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Commit {
    /// The whole hash, in hexadecimal.
    pub hash: String,
    /// Files and directories to watch. All of them exist.
    pub watched: Vec<PathBuf>,
}

/// The commit of the checkout in `dir`. `None` if `dir` is not the root of a checkout: an unpacked
/// archive, also one inside another project's checkout.
pub fn of_checkout(dir: &Path) -> Option<Commit> {
    let dot_git = dir.join(".git");
    // In a worktree `.git` is a file that names the directory.
    let own = match read(&dot_git) {
        Some(text) => dir.join(text.strip_prefix("gitdir: ")?),
        None => dot_git,
    };
    let head = own.join("HEAD");
    let content = read(&head)?;
    let mut watched = vec![head];
    let hash = match content.strip_prefix("ref: ") {
        None => content,
        Some(branch) => {
            // The worktrees of a repository share its branches.
            let shared = read(&own.join("commondir")).map_or(own.clone(), |dir| own.join(dir));
            let (loose, packed) = (shared.join(branch), shared.join("packed-refs"));
            match read(&loose) {
                Some(hash) => {
                    watched.push(loose);
                    hash
                }
                None => {
                    let hash = in_packed(&read(&packed)?, branch)?;
                    watched.push(packed);
                    // The branch's next commit creates its loose file, so the nearest directory is
                    // watched. Cargo would build everything each time for a file that does not exist.
                    let parents = loose.ancestors().skip(1);
                    watched
                        .extend(parents.into_iter().find(|dir| dir.is_dir()).map(Path::to_owned));
                    hash
                }
            }
        }
    };
    let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(Commit { hash, watched })
}

/// A file's text without the newline at its end; `None` if it cannot be read.
fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end().to_owned())
}

/// Finds a branch's commit in packed-refs, a file of lines "hash name".
fn in_packed(packed: &str, branch: &str) -> Option<String> {
    let lines = packed.lines().filter_map(|line| line.split_once(' '));
    let mut found = lines.filter(|(_, name)| *name == branch);
    found.next().map(|(hash, _)| hash.to_owned())
}
