//! Errors of the server's own storage: its disk is full, it cannot read or write a file, or data are damaged. Neither the request nor the
//! privileges of the role are the cause. PostgreSQL reports some of them with the code of a missing privilege.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The label `fault` of each fault.
pub(crate) const FAULT_LABELS: [&str; 5] = ["disk_full", "memory", "not_writable", "io", "damaged"];

/// The source files of PostgreSQL that open, read and write files. Their errors have the code that PostgreSQL derives from `errno`: EROFS
/// and EACCES become `insufficient_privilege`, EISDIR `wrong_object_type`, others `internal_error`.
const STORAGE_SOURCES: [&str; 8] =
    ["md.c", "fd.c", "slru.c", "buffile.c", "copydir.c", "relmapper.c", "xlog.c", "storage.c"];
/// The functions of PostgreSQL that look for the files of a database while a client connects. Other functions of their source files refuse
/// roles.
const CONNECTING_ROUTINES: [&str; 2] = ["InitPostgres", "ValidatePgVersion"];

/// What is wrong with the server's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageFault {
    DiskFull,
    Memory,
    /// The file system is read-only, or the files belong to another user.
    NotWritable,
    Io,
    Damaged,
}

impl StorageFault {
    /// The fault that the server reports, if it does.
    pub(crate) fn of(error: &Error) -> Option<StorageFault> {
        let reported = error.as_db_error()?;
        let code = reported.code();
        let is_of_a_file = || {
            reported.file().is_some_and(|file| STORAGE_SOURCES.contains(&file))
                || reported.routine().is_some_and(|routine| CONNECTING_ROUTINES.contains(&routine))
        };
        match code {
            code if *code == SqlState::DISK_FULL => Some(StorageFault::DiskFull),
            code if *code == SqlState::OUT_OF_MEMORY => Some(StorageFault::Memory),
            code if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED, SqlState::UNDEFINED_FILE].contains(code) => {
                Some(StorageFault::Damaged)
            }
            code if *code == SqlState::INSUFFICIENT_PRIVILEGE && is_of_a_file() => Some(StorageFault::NotWritable),
            code if code.code().starts_with("58") => Some(StorageFault::Io),
            code if [SqlState::WRONG_OBJECT_TYPE, SqlState::INTERNAL_ERROR].contains(code) && is_of_a_file() => {
                Some(StorageFault::Io)
            }
            _ => None,
        }
    }

    /// What is wrong, for clients.
    pub(crate) fn description(self) -> &'static str {
        match self {
            StorageFault::DiskFull => "the disk of the database server is full",
            StorageFault::Memory => "the database server has no memory left",
            StorageFault::NotWritable => "the database server may not change its files",
            StorageFault::Io => "the database server cannot read or write a file",
            StorageFault::Damaged => "data of the database are damaged or missing",
        }
    }

    /// What is wrong and what to do about it, for operators.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            StorageFault::DiskFull => ": the disk of the database server is full; free space on it or enlarge it",
            StorageFault::Memory => {
                ": the database server has no memory left; give it more, or lower its max_connections or work_mem"
            }
            StorageFault::NotWritable => {
                ": the database server may not change its files, because its file system is read-only or they belong to another user; \
                 correct this on the server, privileges in the database do not help"
            }
            StorageFault::Io => {
                ": the database server cannot read or write a file; check its disk, the kernel's log and the server's own log"
            }
            StorageFault::Damaged => {
                ": data of the database are damaged or missing; see the server's log, run REINDEX if it is an index, and otherwise fail over \
                 to a standby or restore a backup"
            }
        }
    }
}
