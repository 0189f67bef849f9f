//! Two functions that the standard library lacks: the normal quantile and the gamma function.

use std::f64::consts::PI;

/// The quantile of the standard normal distribution, with about 16 digits:
/// M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution",
/// Applied Statistics 37(3), 1988, routine PPND16. Infinite at 0 and 1.
pub(crate) fn normal_quantile(u: f64) -> f64 {
    if u <= 0.0 || u >= 1.0 {
        return if u <= 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let centred = u - 0.5;
    if centred.abs() <= 0.425 {
        let distance = 0.180625 - centred * centred;
        return centred * ratio(&CENTRE, distance);
    }
    // Below one half the tail is u itself, which loses no digits.
    let tail = if centred < 0.0 { u } else { 1.0 - u };
    let root = (-tail.ln()).sqrt();
    let size = if root <= 5.0 { ratio(&SHOULDER, root - 1.6) } else { ratio(&FAR, root - 5.0) };
    size.copysign(centred)
}

/// Coefficients of a quotient of two polynomials, constants first.
type Quotient = [[f64; 8]; 2];

const CENTRE: Quotient = [
    [
        3.3871328727963665,
        133.14166789178438,
        1971.5909503065513,
        13731.69376550946,
        45921.95393154987,
        67265.7709270087,
        33430.57558358813,
        2509.0809287301227,
    ],
    [
        1.0,
        42.31333070160091,
        687.1870074920579,
        5394.196021424751,
        21213.794301586597,
        39307.89580009271,
        28729.085735721943,
        5226.495278852854,
    ],
];

const SHOULDER: Quotient = [
    [
        1.4234371107496835,
        4.630337846156546,
        5.769497221460691,
        3.6478483247632045,
        1.2704582524523684,
        0.2417807251774506,
        0.022723844989269184,
        0.0007745450142783414,
    ],
    [
        1.0,
        2.053191626637759,
        1.6763848301838038,
        0.6897673349851,
        0.14810397642748008,
        0.015198666563616457,
        0.0005475938084995345,
        1.0507500716444169e-9,
    ],
];

const FAR: Quotient = [
    [
        6.657904643501103,
        5.463784911164114,
        1.7848265399172913,
        0.29656057182850487,
        0.026532189526576124,
        0.0012426609473880784,
        2.7115555687434876e-5,
        2.0103343992922881e-7,
    ],
    [
        1.0,
        0.599832206555888,
        0.1369298809227358,
        0.014875361290850615,
        0.0007868691311456133,
        1.8463183175100548e-5,
        1.421511758316446e-7,
        2.0442631033899397e-15,
    ],
];

fn ratio(quotient: &Quotient, at: f64) -> f64 {
    let [above, below] = quotient.map(|terms| terms.iter().rev().fold(0.0, |sum, term| sum * at + term));
    above / below
}

/// The gamma function for arguments above 0, with about 15 digits: the approximation of C. Lanczos,
/// SIAM Journal on Numerical Analysis 1(1), 1964, with the nine coefficients of P. Godfrey for g = 7.
pub(crate) fn gamma(argument: f64) -> f64 {
    const G: f64 = 7.0;
    const TERMS: [f64; 8] = [
        676.5203681218851,
        -1259.1392167224028,
        771.3234287776531,
        -176.6150291621406,
        12.507343278686905,
        -0.13857109526572012,
        9.984369578019572e-6,
        1.5056327351493116e-7,
    ];
    if argument < 0.5 {
        return PI / ((PI * argument).sin() * gamma(1.0 - argument));
    }
    if argument > 171.7 {
        return f64::INFINITY;
    }
    let below = argument - 1.0;
    let start = 0.9999999999998099;
    let sum = TERMS.iter().zip(1u8..).fold(start, |sum, (term, number)| sum + term / (below + f64::from(number)));
    let base = below + G + 0.5;
    // In two halves, because the power alone would overflow before the gamma function does.
    let half = base.powf((below + 0.5) / 2.0);
    (2.0 * PI).sqrt() * half * (-base).exp() * half * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{ContinuousCDF, Normal};

    #[test]
    fn normal_quantiles_agree_with_another_program() {
        let normal = Normal::standard();
        for step in 1..10_000 {
            let u = f64::from(step) / 10000.0;
            let other = normal.inverse_cdf(u);
            assert!((normal_quantile(u) - other).abs() <= 1e-11 * (1.0 + other.abs()), "{u}");
        }
        // norm.ppf of scipy 1.17.
        for (u, expected) in [(1e-5, -4.264890793922825), (1e-20, -9.262340089798409), (1e-300, -37.0470962993612)] {
            assert!((normal_quantile(u) / expected - 1.0).abs() < 1e-9, "{u}: {}", normal_quantile(u));
        }
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(normal_quantile(0.5), 0.0);
    }

    #[test]
    fn the_gamma_function_agrees_with_another_program() {
        for step in 1..1000 {
            let argument = f64::from(step) / 17.0;
            let other = statrs::function::gamma::gamma(argument);
            assert!((gamma(argument) / other - 1.0).abs() < 1e-12, "{argument}");
        }
        assert!((gamma(5.0) - 24.0).abs() < 1e-11);
        assert!(gamma(171.6).is_finite() && gamma(1e6) == f64::INFINITY);
    }
}
