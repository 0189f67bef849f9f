//! A secret that controllers and agents share, and the proofs that each side has it. The secret itself never crosses
//! the network. This file does not depend on messages or files.
//!
//! Each side contributes a nonce, so that a recorded proof cannot be used again. A proof is the HMAC-SHA-256 (RFC
//! 2104) of the purpose, the side and both nonces.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashSet;

/// A shorter secret could be guessed from a recorded proof.
const BYTES_MIN: usize = 16;
/// Fewer different characters are a placeholder, such as spaces or one letter repeated. Random 16 hexadecimal digits have
/// fewer than six in one of 200 000 cases.
const DIFFERENT_MIN: usize = 6;
/// Ends every line about a secret that is refused.
const MAKE_ONE: &str = "make one with openssl rand -base64 32";
/// The first part of the signed text, so that another program with the same secret does not accept the proof.
const PURPOSE: &str = "waystage load agent, proof 1";
/// Bytes of a nonce.
const NONCE_BYTES: usize = 32;

/// A shared secret.
#[derive(Clone, Debug)]
pub struct Secret(hmac::Key);

/// The side that makes a proof. The proof of one side is not valid as the proof of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Agent,
    Controller,
}

impl Secret {
    /// The secret in this text, without the line end.
    ///
    /// # Errors
    /// It is too short, has too few different characters, or has spaces at its ends or control characters, which
    /// another program that reads the same file could leave out.
    pub fn new(text: &str) -> Result<Secret, String> {
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.len() < BYTES_MIN {
            return Err(format!(
                "the secret has {} bytes, and at least {BYTES_MIN} are needed; {MAKE_ONE}",
                secret.len()
            ));
        }
        if secret.chars().any(char::is_control) {
            return Err(format!("the secret has more than one line or another control character; {MAKE_ONE}"));
        }
        if secret.trim() != secret {
            return Err(format!("the secret begins or ends with a space; {MAKE_ONE}"));
        }
        let different = secret.chars().collect::<HashSet<_>>().len();
        if different < DIFFERENT_MIN {
            return Err(format!(
                "the secret has {different} different characters, and at least {DIFFERENT_MIN} are needed; {MAKE_ONE}"
            ));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())))
    }

    /// The proof of one side, for the nonces of the agent and of the controller.
    pub(crate) fn proof(&self, side: Side, agent_nonce: &str, controller_nonce: &str) -> String {
        STANDARD.encode(hmac::sign(&self.0, &signed(side, agent_nonce, controller_nonce)))
    }

    /// Whether this is the proof of that side. The comparison takes the same time for every wrong proof.
    pub(crate) fn is_proof(&self, proof: &str, side: Side, agent_nonce: &str, controller_nonce: &str) -> bool {
        let Ok(tag) = STANDARD.decode(proof) else { return false };
        hmac::verify(&self.0, &signed(side, agent_nonce, controller_nonce), &tag).is_ok()
    }
}

/// What is signed. The debug form quotes each text, so that no two pairs of nonces give the same bytes.
fn signed(side: Side, agent_nonce: &str, controller_nonce: &str) -> Vec<u8> {
    format!("{PURPOSE} {side:?} {agent_nonce:?} {controller_nonce:?}").into_bytes()
}

/// A random text that is used once.
///
/// # Errors
/// The operating system has no random numbers.
pub(crate) fn nonce() -> Result<String, String> {
    let mut bytes = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the operating system has no random numbers".to_owned())?;
    Ok(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_secret_one_side_and_two_nonces() {
        let secret = Secret::new("0123456789abcdef\n").unwrap();
        let proof = secret.proof(Side::Agent, "a", "c");
        assert!(Secret::new("0123456789abcdef").unwrap().is_proof(&proof, Side::Agent, "a", "c"));
        assert!(!Secret::new("0123456789abcdeF").unwrap().is_proof(&proof, Side::Agent, "a", "c"));
        assert!(!secret.is_proof(&proof, Side::Controller, "a", "c"));
        assert!(
            !secret.is_proof(&proof, Side::Agent, "c", "a") && !secret.is_proof(&proof, Side::Agent, "a\" \"", "c")
        );
        assert!(!secret.is_proof("", Side::Agent, "a", "c") && !secret.is_proof("?", Side::Agent, "a", "c"));
    }

    #[test]
    fn a_placeholder_is_no_secret() {
        for (text, word) in [
            (" ".repeat(20), "begins or ends with a space"),
            ("0123456789abcdef ".into(), "begins or ends with a space"),
            ("xxxxxxxxxxxxxxxxxxxx".into(), "1 different characters"),
            ("0123456789abcdef\n0123456789abcdef\n".into(), "more than one line"),
            ("0123456789abc\0def".into(), "control character"),
            ("changechangechangeno".replace("no", "\u{1b}"), "control character"),
        ] {
            let line = Secret::new(&text).unwrap_err();
            assert!(line.contains(word) && line.contains("openssl") && !line.contains('\n'), "{text:?}: {line}");
        }
        assert!(Secret::new("correct horse battery staple\r\n").is_ok());
    }

    #[test]
    fn short_secrets_are_refused_and_nonces_differ() {
        let line = Secret::new("short").unwrap_err();
        assert!(line.starts_with("the secret has 5 bytes") && !line.contains("\"short\""), "{line}");
        assert_ne!(nonce().unwrap(), nonce().unwrap());
        assert!(!format!("{:?}", Secret::new("0123456789abcdef").unwrap()).contains("0123"));
    }
}
