//! Expressions in parentheses, as fio allows them for numbers: `+ - * / % ^`, parentheses, and
//! units after numbers.

/// The maximum nesting that is parsed: each level uses stack.
const NESTING_MAX: u32 = 64;

/// Evaluates an expression. `unit` returns the factor of a suffix such as `k`.
pub(super) fn evaluate(text: &str, unit: impl Fn(&str) -> Option<f64>) -> Result<f64, String> {
    let mut parser = Parser { rest: text.trim(), nesting: 0, unit: &unit };
    let value = parser.sum()?;
    match parser.rest.trim_start() {
        "" if value.is_finite() => Ok(value),
        "" => Err("has no value (division by zero, or too large)".to_owned()),
        rest => Err(format!("is not an expression: \"{rest}\" does not belong there")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    nesting: u32,
    unit: &'a dyn Fn(&str) -> Option<f64>,
}

impl Parser<'_> {
    fn take(&mut self, wanted: &[char]) -> Option<char> {
        self.rest = self.rest.trim_start();
        let found = self.rest.chars().next().filter(|c| wanted.contains(c))?;
        self.rest = &self.rest[found.len_utf8()..];
        Some(found)
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            let right = self.product()?;
            value = if operator == '+' { value + right } else { value - right };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.power()?;
        while let Some(operator) = self.take(&['*', '/', '%']) {
            let right = self.power()?;
            value = match operator {
                '*' => value * right,
                '/' => value / right,
                _ => value % right,
            };
        }
        Ok(value)
    }

    fn power(&mut self) -> Result<f64, String> {
        let base = self.operand()?;
        if self.take(&['^']).is_none() {
            return Ok(base);
        }
        self.deeper()?;
        let power = base.powf(self.power()?);
        self.nesting -= 1;
        Ok(power)
    }

    fn operand(&mut self) -> Result<f64, String> {
        if self.take(&['-']).is_some() {
            self.deeper()?;
            let value = -self.operand()?;
            self.nesting -= 1;
            return Ok(value);
        }
        if self.take(&['(']).is_some() {
            self.deeper()?;
            let value = self.sum()?;
            self.nesting -= 1;
            self.take(&[')']).ok_or("has a ( that is not closed")?;
            return Ok(value);
        }
        self.number()
    }

    fn number(&mut self) -> Result<f64, String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let value: f64 =
            digits.parse().map_err(|_| format!("has no number before \"{}\"", self.rest))?;
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let (suffix, rest) = rest.split_at(end);
        let factor = match suffix {
            "" => 1.0,
            suffix => {
                (self.unit)(suffix).ok_or_else(|| format!("has the unknown unit \"{suffix}\""))?
            }
        };
        self.rest = rest;
        Ok(value * factor)
    }

    fn deeper(&mut self) -> Result<(), String> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err("is nested too deep".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes() {
        let unit = |suffix: &str| (suffix == "k").then_some(1024.0);
        for (text, value) in [
            ("(1+2*3)", 7.0),
            ("((1+2)*3)", 9.0),
            ("2^3^2", 512.0),
            ("-2+5", 3.0),
            ("7 % 4 - 1", 2.0),
            ("2k/4", 512.0),
            ("8*1.5", 12.0),
        ] {
            assert_eq!(evaluate(text, unit), Ok(value), "{text}");
        }
        let deep = "(".repeat(10_000);
        for text in [
            "",
            "1+",
            "(1",
            "1)",
            "1/0",
            "2x",
            "a",
            "1 2",
            &deep,
            &"-".repeat(10_000),
            &"2^".repeat(10_000),
        ] {
            assert!(evaluate(text, unit).is_err(), "{text}");
        }
    }
}
