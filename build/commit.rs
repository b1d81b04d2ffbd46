//! The commit that a checkout stands at, read from its files: no `git` is needed.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A commit, and the files that tell when it is another one.
#[derive(Debug, PartialEq, Eq)]
pub struct Commit {
    /// In hexadecimal, all of it.
    pub hash: String,
    /// All exist.
    pub watched: Vec<PathBuf>,
}

/// The commit of the checkout in `dir`; `None` where it is none: an unpacked archive, also one that
/// lies inside of another project's checkout.
pub fn of_checkout(dir: &Path) -> Option<Commit> {
    let dot_git = dir.join(".git");
    // A worktree has a file that names its directory.
    let own = match read(&dot_git) {
        Some(text) => dir.join(text.strip_prefix("gitdir: ")?),
        None => dot_git,
    };
    let head = own.join("HEAD");
    let told = read(&head)?;
    let mut watched = vec![head];
    let hash = match told.strip_prefix("ref: ") {
        None => told,
        Some(branch) => {
            // All worktrees of a repository share its branches.
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
                    // The branch's next commit makes its file. One that does not exist must not be
                    // watched: everything would be built again each time.
                    let parents = loose.ancestors().skip(1);
                    watched.extend(
                        parents
                            .into_iter()
                            .find(|dir| dir.is_dir())
                            .map(Path::to_owned),
                    );
                    hash
                }
            }
        }
    };
    let is_hash = hash.len() >= 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(Commit { hash, watched })
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end().to_owned())
}

/// A branch's commit in a file of lines "hash name".
fn in_packed(packed: &str, branch: &str) -> Option<String> {
    let lines = packed.lines().filter_map(|line| line.split_once(' '));
    let mut found = lines.filter(|(_, name)| *name == branch);
    found.next().map(|(hash, _)| hash.to_owned())
}
