//! The disk as the kernel sees it, over FUSE.

use std::{
    ffi::OsStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use super::{
    content::Content,
    inode::{BLOCK_BYTES, Inode},
    names::Names,
    state::State,
};

/// Nothing is cached by the kernel: it would outlive a power cut.
const TTL: Duration = Duration::ZERO;

/// The file system.
pub struct Served(pub(super) Arc<Mutex<State>>);

macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $do:expr) => {
        match $result {
            Ok($value) => $do,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.0.lock();
        let found = state.find(parent, name).and_then(|ino| state.attributes(ino));
        answer!(reply, found, attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.0.lock().attributes(ino.into());
        answer!(reply, found, attr => reply.attr(&TTL, &attr));
    }

    fn setattr(
        &self, _: &Request, ino: INodeNo, _mode: Option<u32>, _uid: Option<u32>, _gid: Option<u32>,
        size: Option<u64>, _atime: Option<TimeOrNow>, _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>, _handle: Option<FileHandle>, _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>, _bkuptime: Option<SystemTime>, _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.0.lock();
        if let Some(size) = size.and_then(|size| usize::try_from(size).ok())
            && let Ok(content) = state.file(ino)
        {
            content.resize(size);
        }
        answer!(reply, state.attributes(ino.into()), attr => reply.attr(&TTL, &attr));
    }

    fn mkdir(
        &self, _: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.lock().make(parent, name, Inode::Dir(Names::default()));
        answer!(reply, made, attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn create(
        &self, _: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.0.lock();
        let made = state.make(parent, name, Inode::File(Content::default()));
        if let Ok(attr) = &made {
            state.opened(attr.ino.into());
        }
        answer!(reply, made, attr => reply.created(
            &TTL, &attr, Generation(0), FileHandle(0), FopenFlags::FOPEN_DIRECT_IO,
        ));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.lock().remove(parent, name), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.lock().remove(parent, name), () => reply.ok());
    }

    fn rename(
        &self, _: &Request, parent: INodeNo, name: &OsStr, new_parent: INodeNo, new_name: &OsStr,
        _: RenameFlags, reply: ReplyEmpty,
    ) {
        let renamed = self.0.lock().rename((parent, name), (new_parent, new_name));
        answer!(reply, renamed, () => reply.ok());
    }

    fn link(
        &self, _: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry,
    ) {
        let linked = self.0.lock().link(ino, new_parent, new_name);
        answer!(reply, linked, attr => reply.entry(&TTL, &attr, Generation(0)));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.0.lock().opened(ino.into());
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, size: u32, _: OpenFlags,
        _: Option<LockOwner>, reply: ReplyData,
    ) {
        let mut state = self.0.lock();
        answer!(reply, state.file(ino), content => {
            let from = (offset as usize).min(content.bytes.len());
            let to = (from + size as usize).min(content.bytes.len());
            reply.data(&content.bytes[from..to]);
        });
    }

    fn write(
        &self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, data: &[u8], _: WriteFlags,
        _: OpenFlags, _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        answer!(reply, self.0.lock().write(ino, offset, data), size => reply.written(size));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self, _: &Request, ino: INodeNo, _: FileHandle, _: OpenFlags, _: Option<LockOwner>,
        _flush: bool, reply: ReplyEmpty,
    ) {
        self.0.lock().released(ino.into());
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.0.lock().sync(ino);
        match synced {
            Ok(None) => reply.ok(),
            // Only this caller waits, not the whole disk.
            Ok(Some(wait)) => {
                let disk = self.0.clone();
                drop(std::thread::spawn(move || {
                    wait.end(&disk);
                    reply.ok();
                }));
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(
        &self, request: &Request, ino: INodeNo, handle: FileHandle, data_alone: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(request, ino, handle, data_alone, reply);
    }

    fn readdir(
        &self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory,
    ) {
        let mut state = self.0.lock();
        let listed = state.dir(ino).map(|names| names.entries().clone());
        answer!(reply, listed, entries => {
            for (at, (name, ino)) in entries.iter().enumerate().skip(offset as usize) {
                let kind = match state.image.inodes.get(ino) {
                    Some(Inode::Dir(_)) => FileType::Directory,
                    Some(Inode::File(_)) | None => FileType::RegularFile,
                };
                if reply.add(INodeNo(*ino), at as u64 + 1, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let free = if self.0.lock().faults.full { 0 } else { 1 << 20 };
        reply.statfs(1 << 20, free, free, 1 << 20, 1 << 20, BLOCK_BYTES as u32, 255, 4_096);
    }
}
