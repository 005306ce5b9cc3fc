package checkpoint

// Field says what a field of a page is for. What is typed into a field is not kept, only this.
type Field string

// The kinds of fields.
const (
	FieldCard     Field = "card"
	FieldBank     Field = "bank_account"
	FieldPassword Field = "password"
	FieldCode     Field = "one_time_code"
	FieldSearch   Field = "search"
	FieldMessage  Field = "message"
	FieldMail     Field = "mail_address"
	FieldPhone    Field = "phone"
	FieldAddress  Field = "address"
	FieldFile     Field = "file"
	FieldText     Field = "text"
)

var fieldWords = map[Field]string{
	FieldCard: "a card's number or code", FieldBank: "a bank account", FieldPassword: "a password", FieldCode: "a one-time code",
	FieldSearch: "a search", FieldMessage: "a longer text", FieldMail: "a mail address", FieldPhone: "a phone number",
	FieldAddress: "an address", FieldFile: "a file", FieldText: "a text",
}

// Words says in words what a field is for.
func (f Field) Words() string {
	if words, ok := fieldWords[f]; ok {
		return words
	}
	return string(f)
}

// Pays tells whether the content of such a field can pay.
func (f Field) Pays() bool { return f == FieldCard || f == FieldBank }

// Secret tells whether the content of such a field can pay or sign in.
func (f Field) Secret() bool { return f.Pays() || f == FieldPassword || f == FieldCode }
