//! Filebench's personalities (`workloads/*.f` of version 1.5), and two profiles that read and write
//! whole files.

/// One step of a thread's flow. `Open` and `Create` take a file that no thread uses, until `Close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileOp {
    Open,
    Create,
    ReadWhole,
    WriteWhole,
    /// Appends to the open file: from one byte to [`Profile::append_bytes`].
    Append,
    /// `fsync`.
    Sync,
    Close,
    Delete,
    Stat,
    /// Appends as [`FileOp::Append`] does, but to the log that all threads share.
    AppendLog,
    /// Reads a record at a random place, and posts to the writers.
    ReadRecord,
    /// Waits until a number of records have been read since the last time, then writes records,
    /// each durable.
    WriteRecords {
        after: u32,
        count: u32,
    },
    /// Waits until a number of records have been read, then writes a block of the log, durable.
    WriteLog {
        after: u32,
        bytes: u32,
    },
}

impl FileOp {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::ReadWhole => "read",
            Self::WriteWhole => "write",
            Self::Append => "append",
            Self::Sync => "fsync",
            Self::Close => "close",
            Self::Delete => "delete",
            Self::Stat => "stat",
            Self::AppendLog => "log-append",
            Self::ReadRecord => "record-read",
            Self::WriteRecords { .. } => "record-write",
            Self::WriteLog { .. } => "log-write",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub threads: u32,
    pub flow: Vec<FileOp>,
}

/// A workload of files and threads; filebench calls it a personality.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's name, one of [`Profile::NAMES`].
    pub name: &'static str,
    /// Files that exist at the start. As many again may be created.
    pub files: u32,
    pub folder_entries: u32,
    pub file_bytes: u64,
    /// Shape of the gamma distribution of sizes; `None`: all files have the same size.
    pub gamma: Option<f64>,
    pub append_bytes: u32,
    pub record_bytes: u32,
    /// Roles of threads. Loops are counted in the first role.
    pub roles: Vec<Role>,
}

impl Profile {
    pub const NAMES: [&str; 6] =
        ["read-files", "write-files", "webserver", "fileserver", "varmail", "oltp"];

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        use FileOp::{
            Append, AppendLog, Close, Create, Delete, Open, ReadRecord, ReadWhole, Stat, Sync,
            WriteLog, WriteRecords, WriteWhole,
        };
        let one = |threads, flow: &[FileOp]| vec![Role { threads, flow: flow.to_vec() }];
        // Open, whole file of 16 KiB, close.
        let base = Self {
            name: "read-files",
            files: 1000,
            folder_entries: 20,
            file_bytes: 16 << 10,
            gamma: None,
            append_bytes: 16 << 10,
            record_bytes: 2 << 10,
            roles: one(16, &[Open, ReadWhole, Close]),
        };
        Some(match name {
            "read-files" => base,
            "write-files" => {
                Self { name: "write-files", roles: one(16, &[Open, WriteWhole, Close]), ..base }
            }
            "webserver" => {
                let mut flow = [Open, ReadWhole, Close].repeat(10);
                flow.push(AppendLog);
                Self { name: "webserver", gamma: Some(1.5), roles: one(100, &flow), ..base }
            }
            "fileserver" => Self {
                name: "fileserver",
                files: 10_000,
                file_bytes: 128 << 10,
                gamma: Some(1.5),
                roles: one(
                    50,
                    &[
                        Create, WriteWhole, Close, Open, Append, Close, Open, ReadWhole, Close,
                        Delete, Stat,
                    ],
                ),
                ..base
            },
            "varmail" => Self {
                name: "varmail",
                folder_entries: 1_000_000,
                gamma: Some(1.5),
                roles: one(
                    16,
                    &[
                        Delete, Create, Append, Sync, Close, Open, ReadWhole, Append, Sync, Close,
                        Open, ReadWhole, Close,
                    ],
                ),
                ..base
            },
            "oltp" => Self {
                name: "oltp",
                files: 10,
                folder_entries: 1024,
                file_bytes: 10 << 20,
                roles: vec![
                    Role { threads: 200, flow: vec![ReadRecord] },
                    Role { threads: 10, flow: vec![WriteRecords { after: 1000, count: 100 }] },
                    Role { threads: 1, flow: vec![WriteLog { after: 3200, bytes: 256 << 10 }] },
                ],
                ..base
            },
            _ => return None,
        })
    }
}
