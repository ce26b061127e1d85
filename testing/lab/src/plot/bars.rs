//! Bars of parts, one below the other, in panels.

use super::scale::Span;
use super::{
    BOTTOM, COLOURS, GAP, HEAD, LEFT, LEGEND_LINE, PANEL_WIDTH, RIGHT, Reach, Scale, TITLE, Unit,
    document, escaped, line, text,
};
use std::fmt::Write;

/// A picture: panels in two columns, below one legend.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// One line below the title: what was done to get this.
    pub(crate) subtitle: String,
    /// Names of parts, one for each colour.
    pub(crate) series: Vec<&'static str>,
    /// Unit of all values.
    pub(crate) unit: &'static str,
    pub(crate) panels: Vec<BarPanel>,
}

/// Bars along one axis.
pub(crate) struct BarPanel {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// Parts, one behind the other.
pub(crate) struct Bar {
    pub(crate) label: &'static str,
    pub(crate) parts: Vec<Part>,
}

/// A part of a bar.
pub(crate) struct Part {
    /// Its place among the series.
    pub(crate) series: usize,
    pub(crate) value: f64,
}

const COLUMNS: usize = 2;
/// From one bar to the next, and how thick it is.
const PITCH: f64 = 30.0;
const THICK: f64 = 20.0;
/// Room for the labels of bars, beside that of every panel.
const LABELS: f64 = 72.0;
/// The square in front of an entry of the legend.
const SQUARE: f64 = 11.0;

impl Bars {
    /// The whole document.
    pub(crate) fn to_svg(&self) -> String {
        let width = PANEL_WIDTH * COLUMNS.min(self.panels.len()).max(1) as f64;
        let per_line = COLUMNS.min(self.panels.len()).max(1);
        let legend = LEGEND_LINE * self.series.len().div_ceil(per_line) as f64 + GAP;
        let rows: Vec<&[BarPanel]> = self.panels.chunks(COLUMNS).collect();
        let height = HEAD + legend + rows.iter().map(|row| row_height(row)).sum::<f64>();
        let (title, subtitle) = (&self.title, &self.subtitle);
        document(title, subtitle, (width, height), |out| {
            for (index, label) in self.series.iter().enumerate() {
                let x = LEFT + PANEL_WIDTH * (index % per_line) as f64;
                let y = HEAD + LEGEND_LINE * (index / per_line) as f64;
                block(out, index, (x, y - SQUARE / 2.0), (SQUARE, SQUARE), None);
                text(out, "", (x + SQUARE + 8.0, y + 4.0), "start", label);
            }
            let mut top = HEAD + legend;
            for row in rows {
                for (column, panel) in row.iter().enumerate() {
                    self.draw(out, panel, (PANEL_WIDTH * column as f64, top));
                }
                top += row_height(row);
            }
        })
    }

    fn draw(&self, out: &mut String, panel: &BarPanel, (left, top): (f64, f64)) {
        text(out, "p", (left + LEFT, top + 18.0), "start", &panel.title);
        let left = left + LEFT + LABELS;
        let (top, bottom) = (top + TITLE, top + TITLE + panel.height());
        let width = PANEL_WIDTH - LEFT - LABELS - RIGHT;
        let x = Span::of(
            panel.bars.iter().map(Bar::total),
            Scale::Linear,
            Reach::Zero,
        );
        for value in x.ticks() {
            let at = left + width * x.part(value);
            line(out, "g", (at, top), (at, bottom));
            text(
                out,
                "m",
                (at, bottom + 18.0),
                "middle",
                &Unit::Number.tick(value),
            );
        }
        text(
            out,
            "m",
            (left + width / 2.0, bottom + 38.0),
            "middle",
            self.unit,
        );
        for (index, bar) in panel.bars.iter().enumerate() {
            let middle = top + PITCH * (index as f64 + 0.5);
            text(out, "", (left - 8.0, middle + 4.0), "end", bar.label);
            let mut before = 0.0;
            for part in bar.parts.iter().filter(|part| part.value > 0.0) {
                let ends = [before, before + part.value].map(|value| left + width * x.part(value));
                before += part.value;
                let label = self.series.get(part.series).copied().unwrap_or_default();
                let said = format!("{}, {label}: {:.3} {}", bar.label, part.value, self.unit);
                let corner = (ends[0], middle - THICK / 2.0);
                block(
                    out,
                    part.series,
                    corner,
                    (ends[1] - ends[0], THICK),
                    Some(&said),
                );
            }
        }
        let _ = writeln!(
            out,
            "<path class=\"a\" d=\"M{left:.1} {top:.1}V{bottom:.1}\"/>"
        );
    }
}

impl BarPanel {
    /// Of the bars alone.
    fn height(&self) -> f64 {
        PITCH * self.bars.len() as f64
    }
}

impl Bar {
    fn total(&self) -> f64 {
        self.parts.iter().map(|part| part.value).sum()
    }
}

fn row_height(row: &[BarPanel]) -> f64 {
    let highest = row.iter().map(BarPanel::height).fold(0.0, f64::max);
    TITLE + highest + BOTTOM
}

fn block(out: &mut String, index: usize, at: (f64, f64), size: (f64, f64), said: Option<&str>) {
    let _ = write!(
        out,
        "<rect class=\"f{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">",
        index % COLOURS.len(),
        at.0,
        at.1,
        size.0,
        size.1
    );
    if let Some(said) = said {
        let _ = write!(out, "<title>{}</title>", escaped(said));
    }
    *out += "</rect>\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[&[f64]]) -> Bars {
        let part = |(series, &value): (usize, &f64)| Part { series, value };
        let bar = |values: &&[f64]| Bar {
            label: "end",
            parts: values.iter().enumerate().map(part).collect(),
        };
        Bars {
            title: "title".into(),
            subtitle: String::new(),
            series: vec!["<first>", "second"],
            unit: "ns",
            panels: vec![BarPanel {
                title: "panel".into(),
                bars: values.iter().map(bar).collect(),
            }],
        }
    }

    /// Left edge and width of each part.
    fn parts(svg: &str) -> Vec<(f64, f64)> {
        let number = |rect: &str, name: &str| -> f64 {
            let (_, rest) = rect.split_once(&format!(" {name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let rects = svg.split("<rect class=\"f").skip(1);
        let with_title = rects.filter(|rect| rect.contains("</title>"));
        with_title
            .map(|rect| (number(rect, "x"), number(rect, "width")))
            .collect()
    }

    #[test]
    fn parts_follow_each_other_and_the_longest_bar_fills_the_axis() {
        let found = parts(&bars(&[&[2.0, 6.0], &[4.0, 0.0]]).to_svg());
        let (left, width) = (LEFT + LABELS, PANEL_WIDTH - LEFT - LABELS - RIGHT);
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        let expected = [
            (left, width / 4.0),
            (left + width / 4.0, width * 3.0 / 4.0),
            (left, width / 2.0),
        ];
        assert_eq!(
            found,
            expected.map(|(x, width)| (rounded(x), rounded(width)))
        );
    }

    #[test]
    fn longest_label_is_inside_the_picture() {
        let mut bars = bars(&[&[1.0]]);
        let longest = "server, plain TCP";
        bars.panels[0].bars[0].label = longest;
        let svg = bars.to_svg();
        let (before, _) = svg.split_once(longest).unwrap();
        let (_, x) = before.rsplit_once(" x=\"").unwrap();
        let right: f64 = x.split_once('"').unwrap().0.parse().unwrap();
        // A character of 12 pixels is at most 0.6 of it wide, on average.
        assert!(right > 0.6 * 12.0 * longest.len() as f64, "{right}");
    }

    #[test]
    fn parts_are_named() {
        let svg = bars(&[&[1.0, 2.0]]).to_svg();
        assert!(
            svg.contains("<title>end, &lt;first&gt;: 1.000 ns</title>"),
            "{svg}"
        );
        assert!(svg.contains(">&lt;first&gt;</text>") && svg.ends_with("</svg>\n"));
    }
}
