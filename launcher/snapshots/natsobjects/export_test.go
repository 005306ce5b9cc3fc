package natsobjects

import "time"

// AnswersWithin sets how long the server may take to answer.
func (o *Objects) AnswersWithin(d time.Duration) { o.answerTime = d }
