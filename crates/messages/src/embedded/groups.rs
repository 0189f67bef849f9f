//! Decides whether the members of a group can be strangers. A group is trusted if it is root's, or if its only member is a trusted user: the
//! private group that most distributions make for each user. Debian's sshd accepts the same groups in its `StrictModes`.

use std::fs;

/// The files of users and groups. Groups that only a directory service knows are not in them, so they are not trusted.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";
const ROOT: u32 = 0;

/// Whether only root and these users are members of the group.
pub(super) fn is_private(group: u32, users: &[u32]) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    group == ROOT || has_only(group, users, &read(USERS), &read(GROUPS))
}

/// The same for the texts of these files.
fn has_only(group: u32, trusted: &[u32], users: &str, groups: &str) -> bool {
    let mut known = false;
    let mut names = Vec::new();
    for fields in groups.lines().map(fields).filter(|fields| number(fields, 2) == Some(group)) {
        known = true;
        names.extend(fields.get(3).into_iter().flat_map(|members| members.split(',')).filter(|name| !name.is_empty()));
    }
    let is_trusted = |user: Option<u32>| user.is_some_and(|user| user == ROOT || trusted.contains(&user));
    let mut members = 0;
    for fields in users.lines().map(fields) {
        // A user is a member of its own group, and of the groups that list its name.
        let position = fields.first().and_then(|name| names.iter().position(|listed| listed == name));
        if position.is_some() || number(&fields, 3) == Some(group) {
            members += 1;
            if !is_trusted(number(&fields, 2)) {
                return false;
            }
        }
        if let Some(position) = position {
            names.swap_remove(position);
        }
    }
    // Names that are left belong to users that the file does not have.
    known && members > 0 && names.is_empty()
}

fn fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

fn number(fields: &[&str], place: usize) -> Option<u32> {
    fields.get(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n\
        bob:x:1001:1001::/home/bob:/bin/sh\ncarol:x:1002:100::/home/carol:/bin/sh\n+::::::\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nalice:x:1000:\nbob:x:1001:alice\nstaff:x:50:alice,root\n\
        shared:x:51:alice,bob\ncloud:x:52:alice,dora\nempty:x:53:\n";

    #[test]
    fn only_a_group_without_strangers_is_private() {
        let is_private = |group| has_only(group, &[1000], PASSWD, GROUP);
        assert!(is_private(1000), "the user's own group");
        assert!(is_private(50), "the user and root");
        for (group, why) in [
            (1001, "bob's own group"),
            (51, "a group with bob"),
            (100, "the first group of carol"),
            (52, "a member that only a directory service knows"),
            (53, "no member is known"),
            (999, "the group is not known"),
        ] {
            assert!(!is_private(group), "{why}");
        }
        assert!(super::is_private(0, &[]));
    }
}
