//! Makes texts from other programs safe for a terminal. Such a text may contain escape sequences, or line ends followed
//! by a line that looks like our own output.

/// Escapes every character that moves the cursor, changes the terminal, ends the line, is invisible or reorders text.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmless(character) { shown.push(character) } else { shown.extend(character.escape_default()) }
    }
    shown
}

fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_change_the_terminal_is_escaped() {
        assert_eq!(printable("a µs, 99 %"), "a µs, 99 %");
        assert_eq!(printable("\u{1b}[2Jx\r\nVALID\u{7}\u{9b}1m"), "\\u{1b}[2Jx\\r\\nVALID\\u{7}\\u{9b}1m");
        assert_eq!(printable("\u{202e}DILAV\u{2028}\u{200b}"), "\\u{202e}DILAV\\u{2028}\\u{200b}");
    }
}
