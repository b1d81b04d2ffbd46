//! A file or a directory, and its attributes.

use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

use super::{content::Content, names::Names};

pub const BLOCK_BYTES: u64 = 4_096;

#[derive(Clone)]
pub enum Inode {
    Dir(Names),
    File(Content),
}

/// The attributes that `stat` shows.
pub fn attributes(ino: u64, inode: &Inode) -> FileAttr {
    let (kind, perm, size) = match inode {
        Inode::Dir(_) => (FileType::Directory, 0o755, BLOCK_BYTES),
        Inode::File(content) => (FileType::RegularFile, 0o644, content.bytes.len() as u64),
    };
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}
