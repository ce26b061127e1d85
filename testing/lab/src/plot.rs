//! Plots as SVG: panels in a grid, with lines or bars.
//!
//! Colours follow whether the reader's screen is light or dark; lines differ by marker and dash too.
//! What a point stands for is said when the pointer rests on it.
//!
//! The crate `plotters` was tried with the same lines and bars. Its SVG has fixed colours and no style sheet, so that
//! it is dark on dark where the reader's screen is; no titles on points; markers and dashes only as separate series;
//! one legend that covers data; and axes that each panel has for itself. All of that would be code of our own
//! again, around its backend.

mod bars;
mod scale;

pub(super) use bars::{Bar, BarPanel, Bars, Part};
use scale::Span;
pub(super) use scale::{Reach, Scale, Unit};
use std::fmt::Write;

/// A picture of lines: panels from left to right in rows.
pub(super) struct Figure {
    pub(super) title: String,
    /// One line below the title: what was done to get this.
    pub(super) subtitle: String,
    pub(super) y_axis: YAxis,
    /// Panels in a row.
    pub(super) columns: usize,
    pub(super) panels: Vec<Panel>,
}

/// The y axes of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YAxis {
    /// All panels have the same one, so that they can be compared.
    Same,
    /// Each panel has its own.
    Each,
}

/// One pair of axes with lines.
pub(super) struct Panel {
    pub(super) title: String,
    /// A line below the title, such as the value that others are parts of.
    pub(super) note: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

/// Numbers along one side.
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
    pub(super) unit: Unit,
    pub(super) reach: Reach,
}

/// One line, from left to right.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) line: Line,
    pub(super) points: Vec<(f64, f64)>,
    /// The lowest and the highest value at each point, where several were measured.
    pub(super) ranges: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Solid,
    Dashed,
}

/// A rectangle of the picture.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

const PANEL_WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 250.0;
/// Around the axes of a panel: room for its title, for ticks and labels.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 30.0;
const TITLE: f64 = 34.0;
/// Of the line below the title of a panel, if one in a row of panels has it.
const NOTE: f64 = 18.0;
const BOTTOM: f64 = 62.0;
/// The picture's title and subtitle.
const HEAD: f64 = 66.0;
const LEGEND_LINE: f64 = 18.0;
/// About the width of a character.
const CHARACTER: f64 = 6.8;
/// The sample of a line in the legend, and the gap behind an entry.
const SAMPLE: f64 = 30.0;
const GAP: f64 = 14.0;

/// Colours of lines, one after the other: on light and on dark. They can be told apart by those who
/// do not see red and green (after Okabe and Ito).
const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8c42"),
    ("#009e73", "#2fd6a6"),
    ("#aa4499", "#e78ac3"),
    ("#b8860b", "#f0d050"),
    ("#5b5fc7", "#a5a8ff"),
    ("#7a4a1e", "#d0a070"),
    ("#666666", "#b5b5b5"),
];

const STYLE: &str = "text{font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;\
font-size:12px;fill:#24292f}\
.page{fill:#ffffff}.t{font-size:17px;font-weight:600}.p{font-size:13.5px;font-weight:600}\
.m{fill:#57606a}.g{stroke:#d8dee4;stroke-width:1}.a{stroke:#8c959f;stroke-width:1;fill:none}\
.l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.w{stroke-width:1.2;stroke-opacity:.7}";

const DARK: &str = "text{fill:#e6edf3}.page{fill:#0d1117}.m{fill:#9da7b1}\
.g{stroke:#262c36}.a{stroke:#6e7681}";

impl Figure {
    /// The whole document.
    pub(super) fn to_svg(&self) -> String {
        let columns = self.columns.max(1);
        let rows: Vec<&[Panel]> = self.panels.chunks(columns).collect();
        let width = PANEL_WIDTH * columns.min(self.panels.len()).max(1) as f64;
        let heights: Vec<f64> = rows.iter().map(|row| row_height(row)).collect();
        let height = HEAD + heights.iter().sum::<f64>();
        document(&self.title, &self.subtitle, (width, height), |out| {
            let mut top = HEAD;
            let of_all = y_axis(&self.panels);
            for (row, height) in rows.iter().zip(&heights) {
                for (column, panel) in row.iter().enumerate() {
                    let corner = (PANEL_WIDTH * column as f64, top);
                    let y = match self.y_axis {
                        YAxis::Same => of_all,
                        YAxis::Each => y_axis(std::slice::from_ref(panel)),
                    };
                    panel.draw(out, corner, (note_height(row), legend_height(row)), &y);
                }
                top += height;
            }
        })
    }
}

/// A document of this size: its styles, its title, and what is drawn into it.
fn document(
    title: &str,
    subtitle: &str,
    (width, height): (f64, f64),
    draw: impl FnOnce(&mut String),
) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}",
        escaped(title)
    );
    let colours = |out: &mut String, dark: bool| {
        for (index, (on_light, on_dark)) in COLOURS.iter().enumerate() {
            let colour = if dark { on_dark } else { on_light };
            let _ = write!(
                out,
                ".s{index}{{stroke:{colour}}}.f{index}{{fill:{colour}}}"
            );
        }
    };
    colours(&mut out, false);
    let _ = write!(out, "@media(prefers-color-scheme:dark){{{DARK}");
    colours(&mut out, true);
    out += "}</style>\n";
    let _ = writeln!(
        out,
        "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>"
    );
    text(&mut out, "t", (LEFT, 30.0), "start", title);
    text(&mut out, "m", (LEFT, 50.0), "start", subtitle);
    draw(&mut out);
    out += "</svg>\n";
    out
}

/// Which ticks along an axis have room for a label, from the last one on: where the curve ends is always said.
fn labelled(ticks: &[(f64, String)]) -> Vec<bool> {
    let mut labelled = vec![false; ticks.len()];
    let mut end = f64::INFINITY;
    for (index, (at, said)) in ticks.iter().enumerate().rev() {
        let half = CHARACTER * (said.chars().count() + 1) as f64 / 2.0;
        if at + half <= end {
            labelled[index] = true;
            end = at - half;
        }
    }
    labelled
}

/// The axis that all values of these panels fit.
fn y_axis(panels: &[Panel]) -> Span {
    let values = panels.iter().flat_map(Panel::values);
    let y = panels.first().map(|panel| (panel.y.scale, panel.y.reach));
    let (scale, reach) = y.unwrap_or((Scale::Linear, Reach::Zero));
    Span::of(values, scale, reach)
}

/// Panels of a row have their axes at one height, so the largest legend counts.
fn legend_height(row: &[Panel]) -> f64 {
    let lines = row.iter().map(|panel| panel.legend().1).max().unwrap_or(0);
    LEGEND_LINE * lines as f64
}

fn note_height(row: &[Panel]) -> f64 {
    match row.iter().all(|panel| panel.note.is_empty()) {
        true => 0.0,
        false => NOTE,
    }
}

fn row_height(row: &[Panel]) -> f64 {
    TITLE + note_height(row) + legend_height(row) + PLOT_HEIGHT + BOTTOM
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.series.iter().flat_map(|series| &series.points)
    }

    /// Positions of points, each once, if ticks are to be there.
    fn places(&self) -> Option<Vec<f64>> {
        let mut places: Vec<f64> = self.points().map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        (self.x.reach == Reach::Values).then_some(places)
    }

    /// All that is drawn upwards.
    fn values(&self) -> impl Iterator<Item = f64> {
        let ranges = self.series.iter().flat_map(|series| &series.ranges);
        let ranges = ranges.flat_map(|&(low, high)| [low, high]);
        self.points().map(|point| point.1).chain(ranges)
    }

    /// Positions of the legend's entries, column and line, and the number of lines.
    fn legend(&self) -> (Vec<(f64, usize)>, usize) {
        let (mut at, mut line) = (0.0, 0);
        let mut places = Vec::new();
        for series in &self.series {
            let width = SAMPLE + CHARACTER * series.label.chars().count() as f64;
            if at > 0.0 && at + width > PANEL_WIDTH - LEFT - RIGHT {
                (at, line) = (0.0, line + 1);
            }
            places.push((at, line));
            at += width + GAP;
        }
        let lines = if places.is_empty() { 0 } else { line + 1 };
        (places, lines)
    }

    fn draw(
        &self,
        out: &mut String,
        (left, top): (f64, f64),
        (note, legend): (f64, f64),
        y: &Span,
    ) {
        let area = Area {
            left: left + LEFT,
            top: top + TITLE + note + legend,
            width: PANEL_WIDTH - LEFT - RIGHT,
            height: PLOT_HEIGHT,
        };
        text(out, "p", (area.left, top + 18.0), "start", &self.title);
        if !self.note.is_empty() {
            text(
                out,
                "m",
                (area.left, top + 18.0 + NOTE),
                "start",
                &self.note,
            );
        }
        for (index, (series, (at, line))) in self.series.iter().zip(self.legend().0).enumerate() {
            let x = area.left + at;
            let y = top + TITLE + note + LEGEND_LINE * line as f64;
            series.draw(out, index, &[(x, y), (x + SAMPLE - 7.0, y)]);
            marker(out, index, (x + (SAMPLE - 7.0) / 2.0, y), None);
            text(out, "", (x + SAMPLE, y + 4.0), "start", &series.label);
        }
        let x = Span::of(
            self.points().map(|point| point.0),
            self.x.scale,
            self.x.reach,
        );
        self.axes(out, area, &x, y);
        for (index, series) in self.series.iter().enumerate() {
            let place = |&(at, value): &(f64, f64)| {
                (
                    area.left + area.width * x.part(at),
                    area.top + area.height * (1.0 - y.part(value)),
                )
            };
            let places: Vec<_> = series.points.iter().map(place).collect();
            for (&(at, _), &(low, high)) in series.points.iter().zip(&series.ranges) {
                // Those of different lines stand side by side.
                let aside = 2.5 * index as f64;
                let ends = [low, high].map(|value| place(&(at, value)));
                let [low, high] = ends.map(|(x, y)| (x + aside, y));
                whisker(out, index, low, high);
            }
            series.draw(out, index, &places);
            for (place, (at, value)) in places.iter().zip(&series.points) {
                let said = format!(
                    "{}: {} at {}",
                    series.label,
                    self.y.unit.exactly(*value),
                    self.x.unit.exactly(*at)
                );
                marker(out, index, *place, Some(&said));
            }
        }
    }

    fn axes(&self, out: &mut String, area: Area, x: &Span, y: &Span) {
        let (right, bottom) = (area.left + area.width, area.top + area.height);
        for value in y.ticks() {
            let at = bottom - area.height * y.part(value);
            line(out, "g", (area.left, at), (right, at));
            text(
                out,
                "m",
                (area.left - 8.0, at + 4.0),
                "end",
                &self.y.unit.tick(value),
            );
        }
        let places = self.places().unwrap_or_else(|| x.ticks());
        let ticks = places.into_iter().map(|value| {
            let at = area.left + area.width * x.part(value);
            (at, self.x.unit.tick(value))
        });
        let ticks: Vec<(f64, String)> = ticks.collect();
        for ((at, said), labelled) in ticks.iter().zip(labelled(&ticks)) {
            line(out, "g", (*at, area.top), (*at, bottom));
            if labelled {
                text(out, "m", (*at, bottom + 18.0), "middle", said);
            }
        }
        let _ = writeln!(
            out,
            "<path class=\"a\" d=\"M{:.1} {:.1}V{bottom:.1}H{right:.1}\"/>",
            area.left, area.top
        );
        let middle = area.left + area.width / 2.0;
        text(out, "m", (middle, bottom + 38.0), "middle", self.x.label);
        let at = (area.left - 46.0, area.top + area.height / 2.0);
        let _ = writeln!(
            out,
            "<text class=\"m\" text-anchor=\"middle\" transform=\"translate({:.1} {:.1})rotate(-90)\">{}</text>",
            at.0,
            at.1,
            escaped(self.y.label)
        );
    }
}

impl Series {
    fn draw(&self, out: &mut String, index: usize, places: &[(f64, f64)]) {
        let dash = match self.line {
            Line::Solid => "",
            Line::Dashed => " stroke-dasharray=\"7 5\"",
        };
        let points: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            out,
            "<polyline class=\"l s{}\"{dash} points=\"{}\"/>",
            index % COLOURS.len(),
            points.join(" ")
        );
    }
}

/// A mark whose shape tells the lines apart without their colours.
fn marker(out: &mut String, index: usize, (x, y): (f64, f64), said: Option<&str>) {
    let shape = match index % 4 {
        0 => "m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
        1 => "m-3.2-3.2h6.4v6.4h-6.4z",
        2 => "m0-4.4l4.2 7.4h-8.4z",
        _ => "m0-4.6l4.6 4.6-4.6 4.6-4.6-4.6z",
    };
    let colour = index % COLOURS.len();
    let _ = write!(
        out,
        "<path class=\"f{colour}\" d=\"M{x:.1} {y:.1}{shape}\">"
    );
    if let Some(said) = said {
        let _ = write!(out, "<title>{}</title>", escaped(said));
    }
    *out += "</path>\n";
}

/// From the lowest to the highest value at a point.
fn whisker(out: &mut String, index: usize, low: (f64, f64), high: (f64, f64)) {
    let _ = writeln!(
        out,
        "<path class=\"w s{}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
        index % COLOURS.len(),
        low.0,
        low.1,
        high.0,
        high.1
    );
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<path class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(out: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, said: &str) {
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(said)
    );
}

fn escaped(said: &str) -> String {
    let said = said.replace('&', "&amp;").replace('<', "&lt;");
    said.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(label: &str, panels: usize) -> Figure {
        let panel = || Panel {
            title: "panel".into(),
            note: String::new(),
            x: Axis {
                label: "bytes",
                scale: Scale::Log(2),
                unit: Unit::Bytes,
                reach: Reach::Values,
            },
            y: Axis {
                label: "operations",
                scale: Scale::Linear,
                unit: Unit::Number,
                reach: Reach::Zero,
            },
            series: vec![Series {
                label: label.into(),
                line: Line::Dashed,
                points: vec![(1024.0, 2.0), (2048.0, 1.0), (4096.0, 0.0)],
                ranges: Vec::new(),
            }],
        };
        Figure {
            title: "title".into(),
            subtitle: String::new(),
            y_axis: YAxis::Same,
            columns: 2,
            panels: std::iter::repeat_with(panel).take(panels).collect(),
        }
    }

    #[test]
    fn extremes_of_a_line_lie_on_the_edges_of_its_axes() {
        let svg = figure("line", 1).to_svg();
        let (left, right) = (LEFT, PANEL_WIDTH - RIGHT);
        let top = HEAD + TITLE + LEGEND_LINE;
        let bottom = top + PLOT_HEIGHT;
        let points = format!(
            "points=\"{left:.1},{top:.1} {:.1},{:.1} {right:.1},{bottom:.1}\"",
            left.midpoint(right),
            top.midpoint(bottom)
        );
        assert!(svg.contains(&points), "{points} is not in {svg}");
        assert!(svg.contains("<title>line: 2 at 1 KiB</title>"), "{svg}");
    }

    #[test]
    fn ranges_are_on_the_axis_and_drawn() {
        let mut figure = figure("line", 1);
        let series = &mut figure.panels[0].series[0];
        series.ranges = vec![(2.0, 4.0), (1.0, 1.0), (0.0, 2.0)];
        let svg = figure.to_svg();
        let top = HEAD + TITLE + LEGEND_LINE;
        let first = format!(
            "M{LEFT:.1} {:.1}L{LEFT:.1} {top:.1}",
            top + PLOT_HEIGHT / 2.0
        );
        assert!(svg.contains(&first), "{first} is not in {svg}");
        assert_eq!(svg.matches("class=\"w s0\"").count(), 3);
    }

    #[test]
    fn panels_fill_rows() {
        let size = |panels| {
            let svg = figure("line", panels).to_svg();
            let (_, rest) = svg.split_once("viewBox=\"0 0 ").unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        let row = TITLE + LEGEND_LINE + PLOT_HEIGHT + BOTTOM;
        assert_eq!(size(1), format!("{PANEL_WIDTH} {}", HEAD + row));
        assert_eq!(size(2), format!("{} {}", 2.0 * PANEL_WIDTH, HEAD + row));
        assert_eq!(
            size(3),
            format!("{} {}", 2.0 * PANEL_WIDTH, HEAD + 2.0 * row)
        );
    }

    #[test]
    fn ticks_without_room_have_no_labels_but_the_last_has() {
        let labels = |width: f64| {
            let ticks = (0..9).map(|n| (width * f64::from(n), "256 KiB".to_owned()));
            let labelled = labelled(&ticks.collect::<Vec<_>>());
            labelled.into_iter().map(usize::from).collect::<Vec<_>>()
        };
        assert_eq!(labels(CHARACTER * 8.1), [1; 9]);
        assert_eq!(labels(CHARACTER * 7.9), [1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(labels(CHARACTER * 2.7), [0, 0, 1, 0, 0, 1, 0, 0, 1]);
        assert_eq!(labelled(&[]), [false; 0]);
    }

    #[test]
    fn ticks_stand_where_the_points_are() {
        let mut figure = figure("line", 1);
        figure.panels[0].series[0].points = vec![(512.0, 1.0), (2048.0, 1.0), (3072.0, 2.0)];
        let svg = figure.to_svg();
        for said in ["512", "2 KiB", "3 KiB"] {
            assert!(svg.contains(&format!(">{said}</text>")), "{said} in {svg}");
        }
        assert!(!svg.contains(">1 KiB</text>"), "{svg}");
    }

    #[test]
    fn note_stands_below_the_title_of_its_panel() {
        let mut figure = figure("line", 1);
        let before = figure.to_svg();
        figure.panels[0].note = "without: 24 µs".into();
        let svg = figure.to_svg();
        assert!(svg.contains(">without: 24 µs</text>"), "{svg}");
        let height = |svg: &str| {
            svg.split(['"', ' '])
                .nth(8)
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        assert_eq!(height(&svg), height(&before) + NOTE);
    }

    /// How high the first point of each line stands.
    fn first_points(figure: &Figure) -> Vec<String> {
        let svg = figure.to_svg();
        let first = |line: &str| line.split([',', ' ']).nth(1).unwrap().to_owned();
        // Behind each line's sample in the legend.
        let lines = svg.split("points=\"").skip(1).map(first);
        lines.skip(1).step_by(2).collect()
    }

    #[test]
    fn panels_have_one_y_axis_or_each_has_its_own() {
        let mut figure = figure("line", 3);
        figure.panels[1].series[0].points[0].1 = 4.0;
        let top = HEAD + TITLE + LEGEND_LINE;
        let below = top + TITLE + LEGEND_LINE + PLOT_HEIGHT + BOTTOM;
        let half = PLOT_HEIGHT / 2.0;
        let at = |places: [f64; 3]| places.map(|place| format!("{place:.1}")).to_vec();
        assert_eq!(first_points(&figure), at([top + half, top, below + half]));
        figure.y_axis = YAxis::Each;
        assert_eq!(first_points(&figure), at([top, top, below]));
    }

    #[test]
    fn labels_cannot_break_the_document() {
        let svg = figure("<a> & \"b\"", 1).to_svg();
        assert!(svg.contains("&lt;a&gt; &amp; &quot;b&quot;") && !svg.contains("<a>"));
    }

    #[test]
    fn legend_that_is_too_long_for_a_line_goes_on_in_the_next() {
        let mut figure = figure(&"x".repeat(48), 1);
        let panel = &mut figure.panels[0];
        for _ in 0..2 {
            let points = panel.series[0].points.clone();
            panel.series.push(Series {
                label: "short".into(),
                line: Line::Solid,
                points,
                ranges: Vec::new(),
            });
        }
        let lines: Vec<_> = panel.legend().0.iter().map(|&(_, line)| line).collect();
        assert_eq!(lines, [0, 0, 1]);
    }
}
