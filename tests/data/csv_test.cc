#include "gemmill/data/csv.h"

#include "tests/data/gzip.h"
#include "tests/data/testing.h"

namespace gemmill {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const CsvOptions kLabelLast{.label = -1};

absl::StatusOr<Dataset> Parse(const std::string& text, const CsvOptions& options = kLabelLast) {
  return ParseCsv(text, "f.csv", options);
}

std::vector<float> X(const Dataset& dataset) { return Values<float>(Must(dataset.field("x"))); }
std::vector<int64_t> Label(const Dataset& dataset) { return Values<int64_t>(Must(dataset.field("label"))); }
std::vector<float> Target(const Dataset& dataset) { return Values<float>(Must(dataset.field("target"))); }

TEST(CsvTest, ReadsFeaturesAndAnIntegerLabel) {
  const Dataset dataset = Must(Parse("1,2.5,0\n-3,4e2,1\n+5,.25,1\n"));
  EXPECT_EQ(Must(dataset.field("x")).spec().ToString(), "f32[3, 2]");
  EXPECT_THAT(X(dataset), ElementsAre(1, 2.5f, -3, 400, 5, 0.25f));
  EXPECT_THAT(Label(dataset), ElementsAre(0, 1, 1));
  EXPECT_THAT(dataset.class_names(), IsEmpty());
}

TEST(CsvTest, FindsColumnsByNameAndByIndex) {
  const std::string text = "a,kind,b\n1,0,2\n3,1,4\n";
  for (const CsvColumn& column : {CsvColumn("kind"), CsvColumn(1), CsvColumn(-2)}) {
    const Dataset dataset = Must(Parse(text, {.label = column}));
    EXPECT_THAT(X(dataset), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(Label(dataset), ElementsAre(0, 1));
  }
}

TEST(CsvTest, NumbersClassNamesInSortedOrder) {
  const Dataset train = Must(Parse("x,species\n1,virginica\n2,setosa\n3,virginica\n", {.label = "species"}));
  EXPECT_THAT(Label(train), ElementsAre(1, 0, 1));
  EXPECT_THAT(train.class_names(), ElementsAre("setosa", "virginica"));
  const Dataset test = Must(Parse("5,virginica\n", {.label = 1, .class_names = train.class_names()}));
  EXPECT_THAT(Label(test), ElementsAre(1));
  EXPECT_EQ(Must(test.NumClasses()), 2);
  EXPECT_THAT(Error(Parse("5,virginica\n6,rose\n", {.label = 1, .class_names = train.class_names()})),
              HasSubstr("f.csv: line 2, column index 1: 'rose' is none of the 2 classes given"));
}

TEST(CsvTest, ReadsOneOrSeveralTargets) {
  const std::string text = "a,b,c,d\n1,2,3,4\n5,6,7,8\n";
  const Dataset one = Must(Parse(text, {.targets = {"d"}}));
  EXPECT_EQ(Must(one.field("target")).spec().ToString(), "f32[2, 1]");
  EXPECT_THAT(Target(one), ElementsAre(4, 8));
  EXPECT_THAT(X(one), ElementsAre(1, 2, 3, 5, 6, 7));
  const Dataset two = Must(Parse(text, {.targets = {"c", 0}}));
  EXPECT_THAT(Target(two), ElementsAre(3, 1, 7, 5));
  EXPECT_THAT(X(two), ElementsAre(2, 4, 6, 8));
}

TEST(CsvTest, LineEndsAndByteOrderMarkDoNotMatter) {
  for (const char* text :
       {"a,k\n1,0\n2,1\n", "a,k\n1,0\n2,1", "a,k\r\n1,0\r\n2,1\r\n", "a,k\r\n1,0\r\n2,1", "a,k\r1,0\r2,1\r",
        "\xEF\xBB\xBF"
        "a,k\n1,0\n2,1\n",
        "\n\na,k\n1,0\n\n2,1\n\n \n"}) {
    const Dataset dataset = Must(Parse(text, {.label = "k"}));
    EXPECT_THAT(X(dataset), ElementsAre(1, 2)) << text;
    EXPECT_THAT(Label(dataset), ElementsAre(0, 1)) << text;
  }
  EXPECT_THAT(X(Must(Parse("\xEF\xBB\xBF"
                           "1,0\n2,1\n"))),
              ElementsAre(1, 2));
}

TEST(CsvTest, ReadsQuotedFields) {
  const Dataset dataset = Must(Parse(
      "\"width, in cm\",kind\n\"1.5\",\"a,b\"\n 2 , \"say \"\"hi\"\"\" \n3,\"two\r\nlines\"\n", {.label = "kind"}));
  EXPECT_THAT(X(dataset), ElementsAre(1.5f, 2, 3));
  EXPECT_THAT(dataset.class_names(), ElementsAre("a,b", "say \"hi\"", "two\r\nlines"));
  EXPECT_THAT(Label(dataset), ElementsAre(0, 1, 2));
  EXPECT_THAT(X(Must(Parse("w,k\n\"1\",0\n", {.label = "k"}))), ElementsAre(1));
}

TEST(CsvTest, OtherDelimiters) {
  for (const char* text : {"a;k\n1;0\n", "a\tk\n1\t0\n", "a k\n1 0\n", "a|k\n1|0\n"}) {
    EXPECT_THAT(X(Must(Parse(text, {.label = "k", .delimiter = text[1]}))), ElementsAre(1)) << text;
  }
  for (char delimiter : {'"', '\n', '\r', '\0'}) {
    EXPECT_THAT(Error(Parse("1,0\n", {.label = -1, .delimiter = delimiter})), HasSubstr("the delimiter is character"));
  }
}

TEST(CsvTest, FindsOutAboutTheHeader) {
  EXPECT_EQ(Must(Parse("1,2,0\n3,4,1\n")).size(), 2);
  EXPECT_EQ(Must(Parse("a,b,k\n3,4,1\n")).size(), 1);
  EXPECT_EQ(Must(Parse("1,cat\n2,dog\n")).size(), 2);
  EXPECT_EQ(Must(Parse("2019,2020,k\n3,4,1\n", {.label = 2, .header = CsvHeader::kYes})).size(), 1);
  // Partly numbers: data, and so an error, rather than a row that goes missing.
  EXPECT_THAT(Error(Parse("1,two,0\n3,4,1\n")), HasSubstr("line 1, column index 1: 'two' is not a number"));
  EXPECT_THAT(Error(Parse("nan,b,0\n3,4,1\n")), HasSubstr("line 1, column index 0: 'nan' is not a finite number"));
  EXPECT_THAT(Error(Parse("a,b,k\n3,4,1\n", {.label = -1, .header = CsvHeader::kNo})),
              HasSubstr("line 1, column index 0: 'a' is not a number"));
  EXPECT_THAT(Error(Parse("a,k\n1,0\n", {.label = "k", .header = CsvHeader::kNo})),
              HasSubstr("by name, but header is kNo"));
}

// A first row is a header only where all of its fields can be nothing but names; no sample goes missing.
TEST(CsvTest, AFirstRowThatIsNoCleanDataIsNoHeader) {
  for (const char* row : {"?,1", "1.2.3,1", "NA,1", "a,-1", "12/03/2020,cat", "\"1,5\",cat", "-.5.,cat", "+7 cm,cat"}) {
    EXPECT_THAT(Error(Parse(absl::StrCat(row, "\n2,0\n"))),
                AllOf(HasSubstr("f.csv: line 1, column index 0: "), HasSubstr("is not a number"),
                      HasSubstr("if this line is a header, set header to kYes")))
        << row;
  }
  for (const char* row : {",1", ",cat", "\"\",cat"}) {
    EXPECT_THAT(Error(Parse(absl::StrCat(row, "\n2,dog\n"))),
                AllOf(HasSubstr("f.csv: line 1, column index 0: the field is empty"), HasSubstr("set header to kYes")));
  }
  EXPECT_THAT(Error(Parse("1,2,0\n1,,0\n")), testing::Not(HasSubstr("header")));
  EXPECT_EQ(Must(Parse(",k\n2,0\n", {.label = -1, .header = CsvHeader::kYes})).size(), 1);
  EXPECT_EQ(Must(Parse(",k\n2,0\n", {.label = "k"})).size(), 1);
  EXPECT_EQ(Must(Parse("-width,.x,k\n3,2,0\n")).size(), 1);
  EXPECT_EQ(Must(Parse("5,1st\n6,2nd\n")).size(), 2);
}

TEST(CsvTest, ClassNamesDiffer) {
  EXPECT_THAT(Error(Parse("1,a\n", {.label = 1, .class_names = {"a", "b", "a"}})),
              HasSubstr("f.csv: class_names has 'a' twice"));
}

TEST(CsvTest, RaggedRowsNameTheirLine) {
  EXPECT_THAT(Error(Parse("a,b,k\n1,2,0\n3,1\n")), HasSubstr("f.csv: line 3 has 2 fields, expected 3"));
  EXPECT_THAT(Error(Parse("1,2,0\n3,4,1,\n")), HasSubstr("line 2 has 4 fields, expected 3"));
  // Lines are counted as an editor counts them, through quoted line ends and blank lines.
  EXPECT_THAT(Error(Parse("a,k\r\n1,\"x\r\ny\rz\nw\"\r\n\r\n2\r\n")), HasSubstr("line 7 has 1 fields"));
}

TEST(CsvTest, BadNumbersNameLineAndColumn) {
  const std::string header = "a,width,k\n1,2,0\n";
  EXPECT_THAT(Error(Parse(header + "1,,0\n")), HasSubstr("f.csv: line 3, column 'width': the field is empty"));
  EXPECT_THAT(Error(Parse(header + "1,\"\",0\n")), HasSubstr("line 3, column 'width': the field is empty"));
  EXPECT_THAT(Error(Parse(header + "1,2,\n")), HasSubstr("line 3, column 'k': the field is empty"));
  for (const char* text : {"abc", "1.5x", "1,5", "0x10", "--1", "1 2", "NA", "1e"}) {
    EXPECT_THAT(Error(Parse(header + "1,\"" + text + "\",0\n")),
                HasSubstr(absl::StrCat("line 3, column 'width': '", text, "' is not a number")));
  }
  for (const char* text : {"nan", "NaN", "inf", "-Infinity", "1e999"}) {
    EXPECT_THAT(Error(Parse(header + "1," + text + ",0\n")),
                HasSubstr(absl::StrCat("line 3, column 'width': '", text, "' is not a finite number")));
  }
  EXPECT_THAT(Error(Parse(header + "1,1e39,0\n")), HasSubstr("'1e39' is too large for f32"));
  EXPECT_THAT(Error(Parse(header + "1," + std::string(1000, 'z') + "\x01,0\n")), HasSubstr("zzz...' is not a number"));
  EXPECT_THAT(Error(Parse("a,y\n1,2\n3,nan\n", {.targets = {"y"}})), HasSubstr("line 3, column 'y'"));
  EXPECT_EQ(Must(Parse(header + "inf,nan,0\n", {.label = "k", .check_finite = false})).size(), 2);
}

TEST(CsvTest, DoubtfulLabelsAreRefused) {
  EXPECT_THAT(Error(Parse("a,k\n1,0\n2,0.5\n")), HasSubstr("line 3, column 'k': '0.5' is a number but no integer"));
  EXPECT_THAT(Error(Parse("a,k\n1,0\n2,NA\n")),
              HasSubstr("line 3, column 'k': 'NA' is no integer, unlike the class in line 2"));
  EXPECT_THAT(Error(Parse("a,k\n1,cat\n2,7\n")), HasSubstr("'7' is an integer, unlike the class in line 2"));
  EXPECT_THAT(Label(Must(Parse("1,0\n2,NA\n", {.label = 1, .class_names = {"NA", "0"}}))), ElementsAre(1, 0));
}

TEST(CsvTest, BadQuotesNameTheirLine) {
  EXPECT_THAT(Error(Parse("a,k\n1,\"cat\n2,dog\n")), HasSubstr("f.csv: line 2: a quoted field is not closed"));
  EXPECT_THAT(Error(Parse("a,k\n1,\"cat\"s\n")), HasSubstr("line 2: text after the closing quote"));
  EXPECT_THAT(Error(Parse("a,k\n1,5\"\n")), HasSubstr("line 2: a quote in a field that does not begin with one"));
}

TEST(CsvTest, ColumnsThatAreNotThere) {
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.label = "kind"})),
              HasSubstr("f.csv: line 1: there is no column 'kind'; there is 'a', 'b'"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.label = 2})),
              HasSubstr("there is no column of index 2 in a file of 2 columns"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.label = -3})), HasSubstr("there is no column of index -3"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.targets = {"a", "a"}})), HasSubstr("column 'a' is asked for twice"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.targets = {"a", 0}})), HasSubstr("column index 0 is asked for twice"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.targets = {"a", "b"}})), HasSubstr("no column is left for features"));
  EXPECT_THAT(Error(Parse("k\n1\n", {.label = "k"})), HasSubstr("no column is left for features"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {})), HasSubstr("set either label or targets"));
  EXPECT_THAT(Error(Parse("a,b\n1,2\n", {.label = "a", .targets = {"b"}})), HasSubstr("set either label or targets"));
  EXPECT_THAT(Error(Parse("a,b,a\n1,2,0\n")), HasSubstr("line 1: the columns of index 0 and 2 are both named 'a'"));
}

TEST(CsvTest, NothingInTheFile) {
  for (const char* text : {"", "\n\r\n \n", "\xEF\xBB\xBF"}) {
    EXPECT_THAT(Error(Parse(text)), HasSubstr("f.csv: the file is empty"));
  }
  EXPECT_THAT(Error(Parse("a,b,k\n")), HasSubstr("f.csv: there is no row after the header"));
  EXPECT_THAT(Error(Parse("a,b,k", {.label = "k"})), HasSubstr("there is no row after the header"));
  EXPECT_THAT(Error(Parse(Gzip("1,0\n"))), HasSubstr("gzip data"));
}

TEST(CsvTest, ReadsFilesAndNamesTheirPath) {
  const TemporaryDirectory directory;
  EXPECT_EQ(Must(ReadCsv(directory.Write("a.csv", "1,0\n2,1\n"), kLabelLast)).size(), 2);
  EXPECT_THAT(Error(ReadCsv("no/such.csv", kLabelLast)), HasSubstr("no/such.csv: No such file"));
  EXPECT_THAT(Error(ReadCsv(directory.path(), kLabelLast)), HasSubstr(directory.path()));
  const std::string path = directory.Write("b.csv", "1,0\nx,1\n");
  EXPECT_THAT(Error(ReadCsv(path, kLabelLast)), HasSubstr(path + ": line 2"));
}

}  // namespace
}  // namespace gemmill
