//! Checks which users could replace a file or directory. In a directory of another user, that user could create links to other places, or
//! programs that we would run.

use super::groups;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, DirBuilder, File, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
/// The attribute of a file that has an access control list.
#[cfg(target_os = "linux")]
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Only the owner can enter.
const PRIVATE: u32 = 0o700;

/// Whether only root, this process's user or `other` can replace the file or directory at this path, or any directory above it. Follows no
/// links, except those of root in the root directory. Returns the path without these links.
pub(super) fn check(path: &Path, other: Option<u32>) -> Result<PathBuf, String> {
    let mut checked = PathBuf::from("/");
    let parts = || std::path::absolute(path).map_err(|error| error.to_string());
    for part in parts()?.components() {
        match part {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => checked.push(name),
            _ => return Err("the path contains \"..\"; give it without".into()),
        }
        let found = fs::symlink_metadata(&checked).map_err(|error| format!("{}: {error}", checked.display()))?;
        let is_of_the_system = found.uid() == 0 && checked.parent() == Some(Path::new("/"));
        if found.is_symlink() && is_of_the_system {
            checked = fs::canonicalize(&checked).map_err(|error| format!("{}: {error}", checked.display()))?;
        } else if let Some(problem) = problem(&checked, &found, other) {
            return Err(format!("{} {problem}", checked.display()));
        }
    }
    Ok(checked)
}

fn problem(path: &Path, found: &Metadata, other: Option<u32>) -> Option<String> {
    let ours = rustix::process::geteuid().as_raw();
    if found.is_symlink() {
        return Some("is a symbolic link, which the service does not follow; use a directory".into());
    }
    if found.uid() != 0 && found.uid() != ours && Some(found.uid()) != other {
        return Some(format!(
            "belongs to another user (uid {}), who could replace what is in it; use a directory of your own, or run as that user",
            found.uid()
        ));
    }
    if found.mode() & STICKY != 0 {
        return None;
    }
    if found.mode() & WRITABLE_BY_ALL != 0 {
        return Some(
            "can be changed by every user; remove this permission (chmod o-w), or use another directory".into(),
        );
    }
    // The mode of the group is the limit of all entries of the list.
    if found.mode() & WRITABLE_BY_GROUP != 0 && has_access_list(path) {
        return Some(
            "can be changed by users in its access control list; remove the list (setfacl -b), or use another directory"
                .into(),
        );
    }
    let users: Vec<u32> = other.into_iter().chain([ours]).collect();
    let is_open = found.mode() & WRITABLE_BY_GROUP != 0 && !groups::is_private(found.gid(), &users);
    is_open.then(|| {
        format!(
            "can be changed by its group (gid {}), which other users may belong to; remove this permission (chmod g-w), \
             or use another directory",
            found.gid()
        )
    })
}

/// Whether other users than the owner and the group can have permissions.
fn has_access_list(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    return rustix::fs::lgetxattr_query(path, ACCESS_LIST).is_ok();
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Creates the directory if necessary, checks it and everything above it, and opens it. It may belong to the user `other`.
pub(super) fn open_directory(path: &Path, other: Option<u32>) -> Result<(PathBuf, File), String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let missing: Vec<&Path> = path.ancestors().take_while(|part| fs::symlink_metadata(part).is_err()).collect();
    // Everything below the first directory that we create belongs to us.
    if let Some(existing) = missing.last().and_then(|first| first.parent()) {
        let checked = check(existing, other)?;
        let below = path.strip_prefix(existing).unwrap_or(&path);
        for part in below.ancestors().collect::<Vec<_>>().into_iter().rev().filter(|part| *part != Path::new("")) {
            let mode = if part == below { PRIVATE } else { 0o755 };
            let made = DirBuilder::new().mode(mode).create(checked.join(part));
            made.map_err(|error| format!("{}: {error}", checked.join(part).display()))?;
        }
    }
    let checked = check(&path, other)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&checked, flags, Mode::empty()).map_err(|error| error.to_string())?;
    Ok((checked, File::from(opened)))
}

/// Creates an empty file for reading and writing, and replaces any file or link of this name. Follows no link.
pub(super) fn replace_file(path: &Path) -> std::io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Fails if the name exists again.
    fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const STRANGER: u32 = 12345;

    fn refusal(path: &Path) -> String {
        let line = open_directory(path, None).unwrap_err();
        assert!(!line.contains('\n'), "{line}");
        line
    }

    #[test]
    fn a_planted_link_or_a_directory_of_another_user_is_refused_and_nothing_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o755)).unwrap();
        let link = folder.path().join("postgres");
        symlink(&victim, &link).unwrap();
        assert!(refusal(&link).contains("symbolic link"));
        assert!(refusal(&link.join("below")).contains("symbolic link"));
        symlink(folder.path().join("nowhere"), folder.path().join("dangling")).unwrap();
        assert!(refusal(&folder.path().join("dangling")).contains("symbolic link"));
        let found = fs::metadata(&victim).unwrap();
        assert_eq!((found.mode() & 0o777, fs::read_dir(&victim).unwrap().count()), (0o755, 0));
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(&open.join("postgres")).contains("every user"));
        if rustix::process::geteuid().is_root() {
            chown(&victim, Some(STRANGER), None).unwrap();
            assert!(refusal(&victim.join("a/b")).contains("uid 12345"));
            assert!(open_directory(&victim, Some(STRANGER)).is_ok());
        }
    }

    #[test]
    fn a_directory_that_a_group_with_strangers_can_change_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("project");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(open_directory(&place, None).is_ok(), "the group of root");
        chown(&place, None, Some(STRANGER)).unwrap();
        assert!(refusal(&place.join("postgres")).contains("gid 12345"));
        assert!(refusal(&place).contains("chmod g-w"));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open_directory(&place, None).is_ok(), "the group cannot change it");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1775)).unwrap();
        assert!(open_directory(&place, None).is_ok(), "the group can only add to it");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_that_a_stranger_in_an_access_list_can_change_is_refused() {
        use rustix::fs::{XattrFlags, setxattr};
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("project");
        fs::create_dir(&place).unwrap();
        // The version, and the entries as tag, permissions and user: owner, stranger, group, mask, others.
        let entries = [(1, 7, u32::MAX), (2, 7, STRANGER), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, user) in entries {
            list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].concat());
            list.extend(user.to_le_bytes());
        }
        if setxattr(&place, ACCESS_LIST, &list, XattrFlags::empty()).is_err() {
            // This file system has no access control lists.
            return;
        }
        assert!(refusal(&place.join("postgres")).contains("setfacl -b"));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open_directory(&place, None).is_ok(), "the list permits nothing that the mode does not");
    }

    #[test]
    fn a_missing_directory_is_created_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = open_directory(&folder.path().join("a/b"), None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, PRIVATE);
        assert!(open_directory(&path, None).is_ok());
    }

    #[test]
    fn a_log_does_not_follow_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, log) = (folder.path().join("secret"), folder.path().join("log"));
        fs::write(&secret, "kept").unwrap();
        symlink(&secret, &log).unwrap();
        replace_file(&log).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "kept");
        assert!(!fs::symlink_metadata(&log).unwrap().is_symlink());
    }
}
